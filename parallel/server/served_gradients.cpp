#include "parallel/server/served_gradients.h"

#include "core/async/future_combinators.h"
#include "parallel/server/client_base.h"
#include "parallel/server/server.h"
#include "parallel/server/table.h"

namespace troupe::parallel {
namespace {

template <class S>
optim::ContextGradients of_servers(const std::vector<RRef<S>>& servers, bool compressed) {
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

}  // namespace

optim::ContextGradients gradients_of(const Served& served) {
  return of_servers(internal::parallel::servers_now(served), served.pull.on() || served.push.on());
}

optim::ContextGradients gradients_of(const ServedTable& table) {
  return of_servers(internal::parallel::servers_now(table), table.pull.on() || table.push.on());
}

}  // namespace troupe::parallel
