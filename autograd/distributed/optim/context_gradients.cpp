#include "autograd/distributed/optim/context_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/async/future_combinators.h"
#include "core/base/call_frame.h"
#include "core/base/error.h"

namespace troupe::optim {
namespace {

void refuse_twice(const std::string& what, const std::vector<ContextGradients>& all) {
  std::set<std::string> known;
  for (const ContextGradients& g : all)
    for (const std::string& name : g.whose)
      if (!known.insert(name).second)
        throw_invalid(
            what + name +
            " is there twice, so its gradients would count twice: name each optimizer once, and only "
            "one of those that share an actor");
}

void check_context(const std::string& what) {
  if (!frame().context)
    throw_invalid(what +
                  "no context is active here, which would have the gradients: call it between "
                  "step.backward(loss) and the update, where autograd::Context step(cluster) is alive");
}

// Of all, in their order.
Future<std::vector<double>> sizes_of_all(const std::vector<ContextGradients>& all, bool largest) {
  std::vector<Future<std::vector<double>>> asked;
  for (const ContextGradients& g : all) asked.push_back(g.sizes(largest));
  return troupe::all(asked).then([](const std::vector<std::vector<double>>& places) {
    std::vector<double> sizes;
    for (const auto& of : places) sizes.insert(sizes.end(), of.begin(), of.end());
    return sizes;
  });
}

Future<void> scale_all(const std::vector<ContextGradients>& all, double factor, bool wide) {
  std::vector<Future<void>> scaled;
  for (const ContextGradients& g : all) scaled.push_back(g.scale(factor, wide));
  return troupe::all(scaled).then([](const std::vector<Unit>&) {});
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
  out.scale = [leaves](double factor, bool wide) {
    scale_gradients(leaves, factor, wide);
    return Future<void>::ready({});
  };
  return out;
}

void scale_gradients(const Tensors& leaves, double factor, bool wide) {
  for (const Tensor& leaf : leaves) {
    // Out of the context first: what nobody else holds is scaled in place.
    Tensor gradient = autograd::take_context_gradient(leaf);
    if (gradient.defined())
      (void)autograd::exchange_context_gradient(leaf, wide && is_half(gradient.dtype())
                                                          ? scaled(gradient, factor)
                                                          : clipped(std::move(gradient), factor));
  }
}

Future<double> clip_grad_norm(std::vector<ContextGradients> all, double max_norm,
                              const ClipOptions& options) {
  (void)clip_factor(0, max_norm, options);  // bad arguments, before anything is sent
  check_context("[clip_grad_norm] ");
  refuse_twice("[clip_grad_norm] ", all);
  return sizes_of_all(all, options.largest)
      .then([all, max_norm, options, in = frame()](const std::vector<double>& sizes) {
        const double norm = norm_of_sizes(sizes, options.largest);
        const double factor = clip_factor(norm, max_norm, options);
        const CallFrameScope scope(in);
        const auto scaled = factor < 1 ? scale_all(all, factor, false) : Future<void>::ready({});
        return scaled.then([norm] { return norm; });
      });
}

Future<bool> unscale_(LossScaler& scaler, std::vector<ContextGradients> all) {
  check_context("[loss_scaler] ");
  refuse_twice("[loss_scaler] ", all);
  for (const ContextGradients& g : all)
    if (g.optimizer && scaler.unscaled(g.optimizer))
      throw_invalid(
          "[loss_scaler] the gradients of this optimizer, or of these servers, are unscaled already: call "
          "update() first");
  return sizes_of_all(all, true).then([all, &scaler, in = frame()](const std::vector<double>& sizes) {
    const bool finite = std::ranges::all_of(sizes, [](double size) { return std::isfinite(size); });
    bool noted = false;
    for (const ContextGradients& g : all)
      if (g.optimizer) scaler.note_unscaled(g.optimizer, finite), noted = true;
    if (!noted) scaler.note_unscaled(nullptr, finite);
    const CallFrameScope scope(in);
    return scale_all(all, 1 / scaler.scale(), true).then([finite] { return finite; });
  });
}

bool unscale_(const autograd::Context& context, LossScaler& scaler, std::vector<ContextGradients> all) {
  check_may_block("unscale_");
  autograd::Context::Guard guard(context);
  return unscale_(scaler, std::move(all)).get();
}

double clip_grad_norm(const autograd::Context& context, std::vector<ContextGradients> all, double max_norm,
                      const ClipOptions& options) {
  check_may_block("clip_grad_norm");
  autograd::Context::Guard guard(context);
  return clip_grad_norm(std::move(all), max_norm, options).get();
}

}  // namespace troupe::optim
