#include "autograd/distributed/optim/context_gradients.h"

#include "core/async/future_combinators.h"
#include "core/base/call_frame.h"
#include "core/base/error.h"

namespace troupe::optim {

Future<double> clip_grad_norm(std::vector<ContextGradients> all, double max_norm,
                              const ClipOptions& options) {
  (void)clip_factor(0, max_norm, options);  // bad arguments, before anything is sent
  if (!frame().context)
    throw_invalid(
        "[clip_grad_norm] no context is active here, which would have the gradients: call it between "
        "step.backward(loss) and the update, where autograd::Context step(cluster) is alive");
  std::vector<Future<std::vector<double>>> asked;
  for (const ContextGradients& g : all) asked.push_back(g.sizes(options.largest));
  return troupe::all(asked).then([all = std::move(all), max_norm, options,
                                  in = frame()](const std::vector<std::vector<double>>& places) {
    std::vector<double> sizes;
    for (const auto& of : places) sizes.insert(sizes.end(), of.begin(), of.end());
    const double norm = norm_of_sizes(sizes, options.largest);
    const double factor = clip_factor(norm, max_norm, options);
    std::vector<Future<void>> scaled;
    const CallFrameScope scope(in);
    if (factor < 1)
      for (const ContextGradients& g : all) scaled.push_back(g.scale(factor));
    return troupe::all(scaled).then([norm](const std::vector<Unit>&) { return norm; });
  });
}

}  // namespace troupe::optim
