#include "parallel/server/push_part.h"

#include <memory>

#include "core/base/call_frame.h"

namespace troupe::internal::parallel {

optim::StepPart push_part(PushedGradients pushed, double weight) {
  const auto all = std::make_shared<const PushedGradients>(std::move(pushed));
  return {.ready =
              [all](bool) {  // the sizes are asked for in any case: so servers that are lost are found
                all->check();
                return all->gradients.sizes(true);
              },
          .make =
              [all, weight](double factor) {
                const auto scaled =
                    factor == 1 ? Future<void>::ready({}) : all->gradients.scale(factor, true);
                return scaled.then([all, weight, in = frame()] {
                  const CallFrameScope scope(in);
                  return all->push(weight).then([all](const troupe::parallel::Pushed&) {
                    return optim::StepReport{{{.actor = "the servers of trainer " + all->trainer}}};
                  });
                });
              },
          .leave_out = [all] { return all->push(0).then([](const troupe::parallel::Pushed&) {}); }};
}

}  // namespace troupe::internal::parallel
