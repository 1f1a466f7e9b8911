#include "parallel/server/push_part.h"

#include <memory>

namespace troupe::internal::parallel {

void check_not_compressed(bool compressed) {
  if (compressed)
    throw_invalid(
        "[server] values that travel compressed leave their gradients with the trainers, where a norm over "
        "several places does not reach them: clip them there (optim::clip_norm_), and push() them");
}

Future<std::vector<double>> sizes_of_all(const std::vector<Future<std::vector<double>>>& asked) {
  return all(asked).then([](const std::vector<std::vector<double>>& parts) {
    std::vector<double> sizes;
    for (const auto& part : parts) sizes.insert(sizes.end(), part.begin(), part.end());
    return sizes;
  });
}

optim::StepPart push_part(PushedGradients pushed, double weight) {
  const auto all = std::make_shared<const PushedGradients>(std::move(pushed));
  return {.ready = [all, weight](bool sizes) { return all->check(weight, sizes); },
          .make =
              [all, weight](double factor) {
                return all->push(weight, factor).then([all](const troupe::parallel::Pushed&) {
                  return optim::StepReport{{{.actor = "the servers of trainer " + all->trainer}}};
                });
              },
          .leave_out = [all] { return all->push(0, 1).then([](const troupe::parallel::Pushed&) {}); },
          .optimizer = all->servers,
          .client = all->client};
}

}  // namespace troupe::internal::parallel
