// A trainer's push to servers as a part of a step, and the gradients that a context has in them.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "autograd/distributed/optim/context_gradients.h"
#include "autograd/distributed/optim/step_all.h"
#include "core/async/future_combinators.h"
#include "parallel/server/server_options.h"
#include "rref/rref.h"

namespace troupe::internal::parallel {

namespace optim = troupe::optim;

/// `invalid` where pulls or pushes are compressed.
void check_not_compressed(bool compressed);
/// What LossScaler knows servers by, whoever of this worker speaks to them. `first`: as they were served.
template <class S>
const void* identity_of(const std::vector<RRef<S>>& first) {
  return first.empty() ? nullptr : AnyRef(first[0]).handle().get();
}
Future<std::vector<double>> sizes_of_all(const std::vector<Future<std::vector<double>>>& asked);

/// The gradients in these servers, of which `first` were served. `invalid` where pulls or pushes are
/// compressed.
template <class S>
optim::ContextGradients gradients_in(const std::vector<RRef<S>>& first, const std::vector<RRef<S>>& servers,
                                     bool compressed) {
  check_not_compressed(compressed);
  optim::ContextGradients out;
  out.optimizer = identity_of(first);
  for (const auto& s : first) {
    const AnyRef server = s;
    out.whose.push_back(object_name(server.type(), server.id()) + " on " + server.owner_name());
  }
  out.sizes = [servers](bool largest) {
    std::vector<Future<std::vector<double>>> asked;
    for (const auto& s : servers) asked.push_back(s.template call<&S::gradient_sizes>(largest));
    return sizes_of_all(asked);
  };
  out.scale = [servers](double factor, bool wide) {
    std::vector<Future<void>> asked;
    for (const auto& s : servers) asked.push_back(s.template call<&S::scale_gradients>(factor, wide));
    return all(asked).then([](const std::vector<Unit>&) {});
  };
  return out;
}

/// What a trainer would push.
struct PushedGradients {
  /// Throws what push() would; `scaled` and sizes: as Server::check_push.
  std::function<Future<std::vector<double>>(double weight, bool scaled)> check;
  std::function<Future<troupe::parallel::Pushed>(double weight, double factor)> push;
  std::string trainer;
  const void* client = nullptr;   ///< who pushes
  const void* servers = nullptr;  ///< as LossScaler knows them
};
optim::StepPart push_part(PushedGradients pushed, double weight);

}  // namespace troupe::internal::parallel
