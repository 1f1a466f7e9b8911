#include "autograd/distributed/optim/context_gradients.h"

#include <fmt/format.h>

#include <set>

#include "core/async/future_combinators.h"
#include "core/base/call_frame.h"
#include "core/base/error.h"

namespace troupe::optim {
namespace {

void refuse_twice(const std::vector<ContextGradients>& all) {
  std::set<std::string> known;
  for (const ContextGradients& g : all)
    for (const std::string& name : g.whose)
      if (!known.insert(name).second)
        throw_invalid(
            "[clip_grad_norm] " + name +
            " is there twice, so its gradients would count twice: name each optimizer once, and only "
            "one of those that share an actor");
}

}  // namespace

ContextGradients gradients_of(const Tensors& leaves) {
  ContextGradients out;
  for (const Tensor& leaf : leaves)
    out.whose.push_back(fmt::format("the leaf {} at {}", leaf.summary(), fmt::ptr(leaf.impl())));
  out.sizes = [leaves](bool largest) {
    Tensors gradients;
    for (const Tensor& leaf : leaves) gradients.push_back(autograd::context_gradient(leaf));
    return Future<std::vector<double>>::ready(gradient_sizes(gradients, largest));
  };
  out.scale = [leaves](double factor) {
    scale_gradients(leaves, factor);
    return Future<void>::ready({});
  };
  return out;
}

void scale_gradients(const Tensors& leaves, double factor) {
  for (const Tensor& leaf : leaves) {
    // Out of the context first: what nobody else holds is scaled in place.
    Tensor gradient = autograd::take_context_gradient(leaf);
    if (gradient.defined())
      (void)autograd::exchange_context_gradient(leaf, clipped(std::move(gradient), factor));
  }
}

Future<double> clip_grad_norm(std::vector<ContextGradients> all, double max_norm,
                              const ClipOptions& options) {
  (void)clip_factor(0, max_norm, options);  // bad arguments, before anything is sent
  if (!frame().context)
    throw_invalid(
        "[clip_grad_norm] no context is active here, which would have the gradients: call it between "
        "step.backward(loss) and the update, where autograd::Context step(cluster) is alive");
  refuse_twice(all);
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

double clip_grad_norm(const autograd::Context& context, std::vector<ContextGradients> all, double max_norm,
                      const ClipOptions& options) {
  check_may_block("clip_grad_norm");
  autograd::Context::Guard guard(context);
  return clip_grad_norm(std::move(all), max_norm, options).get();
}

}  // namespace troupe::optim
