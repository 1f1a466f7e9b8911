// Activation functions that are made of others.
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/promote.h"
#include "ops/gradient_rules.h"
#include "ops/logic.h"
#include "ops/softmax.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

std::vector<Sample> activation_samples() { return {{{sample({3, 4})}}, {{sample({0, 3})}}}; }
std::vector<Sample> wide_samples() { return {{{sample({3, 4}, -5.9, 5.9)}}, {{sample({})}}}; }

// Without an attribute: f(x) of a floating tensor.
template <Tensor f(const Tensor&)>
Op made_of(const char* name, const char* text, GradientRule* gradient = nullptr,
           std::vector<Sample> (*samples)() = activation_samples, Promotion promotes = Promotion::none) {
  return {.name = name,
          .text = text,
          .compose = [](const Call& c) -> Tensors {
            require_floating(c, c.in[0]);
            return {f(c.in[0])};
          },
          .saves_inputs = gradient ? 1u : 0u,
          .gradient = gradient,
          .promotes = promotes,
          .samples = samples};
}

Tensor selu_of(const Tensor& x) { return mul(elu(x, 1.6732632423543772848), 1.0507009873554804934); }
Tensor mish_of(const Tensor& x) { return mul(x, tanh(softplus(x))); }
Tensor relu6_of(const Tensor& x) { return clamp(x, 0.0, 6.0); }
Tensor hardsigmoid_of(const Tensor& x) { return div(relu6_of(add(x, 3.0)), 6.0); }
Tensor hardswish_of(const Tensor& x) { return div(mul(x, relu6_of(add(x, 3.0))), 6.0); }
Tensor logsigmoid_of(const Tensor& x) { return neg(softplus(neg(x))); }
Tensor softsign_of(const Tensor& x) { return div(x, add(abs(x), 1.0)); }
Tensor tanhshrink_of(const Tensor& x) { return sub(x, tanh(x)); }

Tensors mish_gradient(const Backward& b) {
  const Tensor &x = b.in[0], t = tanh(softplus(x));
  const Tensor inner = mul(mul(x, sigmoid(x)), add(neg(square(t)), 1.0));
  return {mul(b.grads[0], add(t, inner))};
}

Tensors hardswish_gradient(const Backward& b) {
  const Tensor &x = b.in[0], &g = b.grads[0], zero = tensor(0, g.options());
  const Tensor middle = mul(g, add(div(x, 3.0), 0.5));
  return {where(le(x, -3), zero, where(lt(x, 3), middle, g))};
}

Tensors logsigmoid_gradient(const Backward& b) { return {mul(b.grads[0], sigmoid(neg(b.in[0])))}; }

Tensors prelu_of(const Call& c) {
  const Tensor &x = c.in[0], &weight = c.in[1];
  require_floating(c, x);
  require_same_dtype(c);
  const int64_t channels = x.dim() == 0 ? 1 : x.size(x.dim() > 1 ? 1 : 0);
  if (weight.dim() > 1 || (weight.numel() != 1 && (weight.numel() != channels || x.dim() == 0)))
    reject(c, fmt::format("weight must be one number or [{}], one for each channel of {}, got {}", channels,
                          x.summary(), weight.summary()));
  std::vector<int64_t> lie(static_cast<size_t>(x.dim()), 1);
  if (weight.numel() != 1) lie[x.dim() > 1 ? 1 : 0] = channels;
  return {where(gt(x, 0), x, mul(reshape(weight, lie), x))};
}

Tensors glu_of(const Call& c) {
  const Tensor& x = c.in[0];
  require_floating(c, x);
  if (x.dim() == 0) reject(c, "needs at least one dimension, got a 0-d tensor");
  const int dim = x.shape().axis(c.attrs.integer("dim"), c.name());
  const int64_t n = x.shape()[dim];
  if (n % 2) reject(c, fmt::format("needs an even size to halve, got {} in dimension {}", x.summary(), dim));
  return {mul(slice(x, dim, 0, n / 2), sigmoid(slice(x, dim, n / 2, n)))};
}

double width_of_shrink(const Call& c) {
  require_floating(c, c.in[0]);
  const double lambd = c.attrs.number("lambd");
  if (!(lambd >= 0)) reject(c, fmt::format("lambd must be at least 0, got {}", lambd));
  return lambd;
}

Tensors softshrink_of(const Call& c) {
  const Tensor& x = c.in[0];
  const double l = width_of_shrink(c);  // NaN stays
  return {where(gt(x, l), add(x, -l), where(lt(x, -l), add(x, l), mul(x, 0.0)))};
}

Tensors hardshrink_of(const Call& c) {
  const Tensor& x = c.in[0];
  require_floating(c, x);
  const double l = c.attrs.number("lambd");
  return {where(logical_and(ge(x, -l), le(x, l)), tensor(0, x.options()), x)};
}

}  // namespace

const Op kCelu{.name = "celu",
               .text = "x where it is above 0, else alpha (exp(x / alpha) - 1).",
               .attrs = {{"alpha", 1.0}},
               .compose = [](const Call& c) -> Tensors {
                 require_floating(c, c.in[0]);
                 const double alpha = c.attrs.number("alpha");
                 if (alpha == 0) reject(c, "alpha must not be 0");
                 const Tensor& x = c.in[0];
                 return {where(gt(x, 0), x, mul(elu(div(x, alpha)), alpha))};
               },
               .samples = activation_samples};
const Op kSelu = made_of<selu_of>("selu", "1.0507 times elu of alpha 1.6733.");
const Op kMish = made_of<mish_of>("mish", "x tanh(softplus(x)) of each element.", mish_gradient);
const Op kHardtanh{.name = "hardtanh",
                   .text = "Each element, limited to [min_val, max_val].",
                   .attrs = {{"min_val", -1.0}, {"max_val", 1.0}},
                   .compose = [](const Call& c) -> Tensors {
                     require_floating(c, c.in[0]);
                     const double low = c.attrs.number("min_val"), high = c.attrs.number("max_val");
                     if (low > high) reject(c, fmt::format("min_val {} is above max_val {}", low, high));
                     return {clamp(c.in[0], low, high)};
                   },
                   .samples = activation_samples};
const Op kRelu6 = made_of<relu6_of>("relu6", "Each element, limited to [0, 6].", nullptr, wide_samples);
const Op kHardsigmoid =
    made_of<hardsigmoid_of>("hardsigmoid", "relu6(x + 3) / 6 of each element.", nullptr, wide_samples);
const Op kHardswish = made_of<hardswish_of>("hardswish", "x relu6(x + 3) / 6 of each element.",
                                            hardswish_gradient, wide_samples);
const Op kLogsigmoid = made_of<logsigmoid_of>("logsigmoid", "log(sigmoid(x)) of each element.",
                                              logsigmoid_gradient, wide_samples);
const Op kPrelu{.name = "prelu",
                .inputs = "input weight",
                .text = "x where it is above 0, else weight x; weight: one number, or one for each channel.",
                .compose = prelu_of,
                .samples = []() -> std::vector<Sample> {
                  return {{{sample({2, 3, 2}), sample({3}, -1, 1, 1)}},
                          {{sample({4}), sample({1}, -1, 1, 1)}},
                          {{sample({}), sample({}, -1, 1, 1)}}};
                }};
const Op kGlu{.name = "glu",
              .text = "The first half along dim, times the sigmoid of the second one.",
              .attrs = {{"dim", -1}},
              .compose = glu_of,
              .samples = []() -> std::vector<Sample> {
                return {{{sample({3, 4})}}, {{sample({2, 3})}, {{"dim", 0}}}};
              }};
const Op kSoftsign = made_of<softsign_of>("softsign", "x / (1 + |x|) of each element.", nullptr,
                                          activation_samples, Promotion::floating);
const Op kTanhshrink = made_of<tanhshrink_of>("tanhshrink", "x - tanh(x) of each element.", nullptr,
                                              activation_samples, Promotion::floating);
const Op kSoftshrink{.name = "softshrink",
                     .text = "Each element, moved towards 0 by lambd.",
                     .attrs = {{"lambd", 0.5}},
                     .compose = softshrink_of,
                     .samples = activation_samples};
const Op kHardshrink{.name = "hardshrink",
                     .text = "0 in [-lambd, lambd], and the elements elsewhere.",
                     .attrs = {{"lambd", 0.5}},
                     .compose = hardshrink_of,
                     .samples = activation_samples};
const Op kThreshold{
    .name = "threshold",
    .text = "The elements above the threshold, and value in the place of others.",
    .attrs = {{"threshold", 0.0}, {"value", 0.0}},
    .compose = [](const Call& c) -> Tensors {
      const Tensor& x = c.in[0];
      require_floating(c, x);
      return {where(le(x, c.attrs.number("threshold")), tensor(c.attrs.number("value"), x.options()), x)};
    },
    .samples = []() -> std::vector<Sample> {
      return {{{sample({3, 4})}, {{"threshold", 0.1}, {"value", 20.0}}}};
    }};
const Op kSoftmin{
    .name = "softmin",
    .text = "softmax of the negative elements along dim.",
    .internal = true,  // the function takes a dtype, too
    .attrs = {{"dim", -1}},
    .compose = [](const Call& c) -> Tensors { return {softmax(neg(c.in[0]), c.attrs.integer("dim"))}; },
    .samples = activation_samples};

Tensor softplus(const Tensor& x, double beta, double threshold) {
  if (beta == 1 && threshold >= 20) return apply1(kSoftplus, {x});  // equal but for rounding
  if (!x.defined()) return apply1(kSoftplus, {x});
  if (beta == 0) throw_invalid("[softplus] beta must not be 0");
  return rounded_once(x.dtype(), [&](DType wide) {
    const Tensor y = to(x, wide), scaled = mul(y, beta);
    return where(gt(scaled, threshold), y, div(apply1(kSoftplus, {scaled}), beta));
  });
}
Tensor celu(const Tensor& x, double alpha) { return apply1(kCelu, {x}, {{"alpha", alpha}}); }
Tensor selu(const Tensor& x) { return apply1(kSelu, {x}); }
Tensor mish(const Tensor& x) { return apply1(kMish, {x}); }
Tensor hardtanh(const Tensor& x, double min_val, double max_val) {
  return apply1(kHardtanh, {x}, {{"min_val", min_val}, {"max_val", max_val}});
}
Tensor relu6(const Tensor& x) { return apply1(kRelu6, {x}); }
Tensor hardsigmoid(const Tensor& x) { return apply1(kHardsigmoid, {x}); }
Tensor hardswish(const Tensor& x) { return apply1(kHardswish, {x}); }
Tensor logsigmoid(const Tensor& x) { return apply1(kLogsigmoid, {x}); }
Tensor prelu(const Tensor& x, const Tensor& weight) { return apply1(kPrelu, {x, weight}); }
Tensor glu(const Tensor& x, int64_t dim) { return apply1(kGlu, {x}, {{"dim", dim}}); }
Tensor softsign(const Tensor& x) { return apply1(kSoftsign, {x}); }
Tensor tanhshrink(const Tensor& x) { return apply1(kTanhshrink, {x}); }
Tensor softshrink(const Tensor& x, double lambd) { return apply1(kSoftshrink, {x}, {{"lambd", lambd}}); }
Tensor hardshrink(const Tensor& x, double lambd) { return apply1(kHardshrink, {x}, {{"lambd", lambd}}); }
Tensor threshold(const Tensor& x, double threshold, double value) {
  return apply1(kThreshold, {x}, {{"threshold", threshold}, {"value", value}});
}
Tensor softmin(const Tensor& x, int64_t dim) { return apply1(kSoftmin, {x}, {{"dim", dim}}); }

}  // namespace troupe::ops
