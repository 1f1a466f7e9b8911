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

/// The gradients in these servers. `invalid` where pulls or pushes are compressed.
template <class S>
optim::ContextGradients gradients_in(const std::vector<RRef<S>>& servers, bool compressed) {
  if (compressed)
    throw_invalid(
        "[server] values that travel compressed leave their gradients with the trainers, where a norm over "
        "several places does not reach them: clip them there (optim::clip_norm_), and push() them");
  optim::ContextGradients out;
  out.sizes = [servers](bool largest) {
    std::vector<Future<std::vector<double>>> asked;
    for (const auto& s : servers) asked.push_back(s.template call<&S::gradient_sizes>(largest));
    return all(asked).then([](const std::vector<std::vector<double>>& parts) {
      std::vector<double> sizes;
      for (const auto& part : parts) sizes.insert(sizes.end(), part.begin(), part.end());
      return sizes;
    });
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
  optim::ContextGradients gradients;
  std::function<void()> check;  ///< throws if it could not be pushed now
  std::function<Future<troupe::parallel::Pushed>(double weight)> push;
  std::string trainer;
};
optim::StepPart push_part(PushedGradients pushed, double weight);

}  // namespace troupe::internal::parallel
