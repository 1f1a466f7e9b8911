#include "ops/activation.h"

#include <numbers>

#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/gradient_rules.h"
#include "ops/unary.h"

namespace troupe::ops {
namespace {

std::vector<Sample> any_inputs() { return {{{sample({3, 4})}}, {{sample({0, 3})}}}; }
std::vector<Sample> two() { return {{{sample({3, 4}), sample({3, 4}, 0.1, 0.9, 1)}}}; }

Specs gradient_spec(const Call& c) {
  require_same_dtype(c);
  require_same_shape(c, c.in[0], c.in[1]);
  return floating_unary(c);
}

Specs gelu_spec(const Call& c) {
  const std::string& mode = c.attrs.text("approximate");
  if (mode != "none" && mode != "tanh") reject(c, "approximate is \"" + mode + "\", expected none or tanh");
  return floating_unary(c);
}

Specs gelu_grad_spec(const Call& c) {
  gelu_spec(c);
  return gradient_spec(c);
}

// Rules of several operators.
Tensors tanh_grad_gradient(const Backward& b) {
  Tensors out(2);
  if (b.needs(0)) out[0] = apply1(kTanhGrad, {b.grads[0], b.in[1]});
  if (b.needs(1)) out[1] = mul(mul(mul(b.grads[0], b.in[0]), b.in[1]), -2.0);
  return out;
}
Tensors sigmoid_grad_gradient(const Backward& b) {
  Tensors out(2);
  if (b.needs(0)) out[0] = apply1(kSigmoidGrad, {b.grads[0], b.in[1]});
  if (b.needs(1)) out[1] = mul(mul(b.grads[0], b.in[0]), add(mul(b.in[1], -2.0), 1.0));
  return out;
}
Tensors silu_recorded(const Backward& b) {
  const Tensor s = sigmoid(b.in[0]);
  return {mul(b.grads[0], mul(s, add(mul(b.in[0], add(neg(s), 1.0)), 1.0)))};
}
Tensors gelu_recorded(const Backward& b) {
  return {mul(b.grads[0], gelu_slope(b.in[0], b.attrs.text("approximate") == "tanh"))};
}

}  // namespace

Tensor gelu_slope(const Tensor& x, bool approximate) {
  using std::numbers::inv_sqrtpi, std::numbers::sqrt2;
  if (!approximate) {
    const Tensor p = mul(add(erf(mul(x, 1 / sqrt2)), 1.0), 0.5);
    const Tensor density = mul(exp(mul(square(x), -0.5)), inv_sqrtpi / sqrt2);
    return add(p, mul(x, density));
  }
  const double a = sqrt2 * inv_sqrtpi, c = 0.044715;
  const Tensor x2 = square(x);
  const Tensor t = tanh(mul(mul(x, add(mul(x2, c), 1.0)), a));
  const Tensor inner = mul(add(mul(x2, 3 * c), 1.0), a);
  const Tensor curved = mul(mul(x, inner), add(neg(square(t)), 1.0));
  return mul(add(add(t, 1.0), curved), 0.5);
}

const Op kRelu{.name = "relu",
               .text = "The larger of each element and 0.",
               .shape = numeric_unary,
               .saves_outputs = 1,
               .gradient = [](const Backward& b) -> Tensors {
                 return {apply1(kReluGrad, {b.grads[0], b.out[0]})};
               },
               .samples = any_inputs};
const Op kReluGrad{.name = "relu_grad",
                   .inputs = "grad result",
                   .text = "Gradient of relu from its result.",
                   .internal = true,
                   .shape = gradient_spec,
                   .saves_inputs = 0b10,
                   .gradient = [](const Backward& b) -> Tensors {
                     return {apply1(kReluGrad, {b.grads[0], b.in[1]}), Tensor()};
                   },
                   .samples = two};

const Op kTanh{.name = "tanh",
               .text = "The hyperbolic tangent of each element.",
               .shape = floating_unary,
               .saves_outputs = 1,
               .gradient = [](const Backward& b) -> Tensors {
                 return {apply1(kTanhGrad, {b.grads[0], b.out[0]})};
               },
               .promotes = Promotion::floating,
               .samples = any_inputs};
const Op kTanhGrad{
    .name = "tanh_grad",
    .inputs = "grad result",
    .text = "Gradient of tanh from its result.",
    .internal = true,
    .shape = gradient_spec,
    .saves_inputs = 0b11,
    .gradient = [](const Backward& b) -> Tensors { return rounded_once(b, tanh_grad_gradient); },
    .samples = two};

const Op kSigmoid{.name = "sigmoid",
                  .text = "1 / (1 + exp(-x)) of each element.",
                  .shape = floating_unary,
                  .saves_outputs = 1,
                  .gradient = [](const Backward& b) -> Tensors {
                    return {apply1(kSigmoidGrad, {b.grads[0], b.out[0]})};
                  },
                  .promotes = Promotion::floating,
                  .samples = any_inputs};
const Op kSigmoidGrad{
    .name = "sigmoid_grad",
    .inputs = "grad result",
    .text = "Gradient of sigmoid from its result.",
    .internal = true,
    .shape = gradient_spec,
    .saves_inputs = 0b11,
    .gradient = [](const Backward& b) -> Tensors { return rounded_once(b, sigmoid_grad_gradient); },
    .samples = two};

const Op kSilu{.name = "silu",
               .text = "x sigmoid(x) of each element.",
               .shape = floating_unary,
               .saves_inputs = 1,
               .gradient = [](const Backward& b) -> Tensors {
                 return grad_enabled() ? rounded_once(b, silu_recorded)
                                       : Tensors{apply1(kSiluGrad, {b.grads[0], b.in[0]})};
               },
               .samples = any_inputs};

const Op kSiluGrad{.name = "silu_grad",
                   .inputs = "grad input",
                   .text = "Gradient of silu from its input.",
                   .internal = true,
                   .shape = gradient_spec,
                   .samples = two};

const Op kGelu{.name = "gelu",
               .text = "x times the normal distribution function of x; approximate: \"none\" or \"tanh\".",
               .attrs = {{"approximate", "none"}},
               .shape = gelu_spec,
               .saves_inputs = 1,
               .gradient = [](const Backward& b) -> Tensors {
                 return grad_enabled() ? rounded_once(b, gelu_recorded)
                                       : Tensors{apply1(kGeluGrad, {b.grads[0], b.in[0]}, b.attrs)};
               },
               .samples = []() -> std::vector<Sample> {
                 return {{{sample({3, 4})}}, {{sample({3, 4})}, {{"approximate", "tanh"}}}};
               }};

const Op kGeluGrad{.name = "gelu_grad",
                   .inputs = "grad input",
                   .text = "Gradient of gelu from its input.",
                   .internal = true,
                   .attrs = {{"approximate", "none"}},
                   .shape = gelu_grad_spec,
                   .samples = []() -> std::vector<Sample> {
                     std::vector<Sample> all = two();
                     all.push_back({all[0].inputs, {{"approximate", "tanh"}}});
                     return all;
                   }};

const Op kSoftplus{
    .name = "softplus",
    .text = "log(1 + exp(x)) of each element, without overflow.",
    .internal = true,  // the function has beta and threshold
    .shape = floating_unary,
    .saves_inputs = 1,
    .gradient =
        rounding_once<[](const Backward& b) -> Tensors { return {mul(b.grads[0], sigmoid(b.in[0]))}; }>,
    .samples = any_inputs};

const Op kLeakyRelu{
    .name = "leaky_relu",
    .text = "x where it is above 0, else negative_slope x.",
    .attrs = {{"negative_slope", 0.01}},
    .shape = floating_unary,
    .saves_inputs = 1,
    .gradient = [](const Backward& b) -> Tensors {
      const Tensor &x = b.in[0], &g = b.grads[0];
      return {where(gt(x, tensor(0, x.options())), g, mul(g, b.attrs.number("negative_slope")))};
    },
    .samples = any_inputs};

// exp is taken of 0 where its branch is not used, so that it stays finite there.
const Op kElu{.name = "elu",
              .text = "x where it is above 0, else alpha (exp(x) - 1).",
              .attrs = {{"alpha", 1.0}},
              .shape = floating_unary,
              .saves_inputs = 1,
              .gradient = rounding_once<[](const Backward& b) -> Tensors {
                const Tensor &x = b.in[0], &g = b.grads[0];
                const Tensor zero = tensor(0, x.options());
                const Tensor below = exp(where(lt(x, zero), x, zero));
                return {where(le(x, zero), mul(mul(g, b.attrs.number("alpha")), below), g)};
              }>,
              .samples = any_inputs};

Tensor relu(const Tensor& x) { return apply1(kRelu, {x}); }
Tensor tanh(const Tensor& x) { return apply1(kTanh, {x}); }
Tensor sigmoid(const Tensor& x) { return apply1(kSigmoid, {x}); }
Tensor silu(const Tensor& x) { return apply1(kSilu, {x}); }
Tensor gelu(const Tensor& x, const std::string& approximate) {
  return apply1(kGelu, {x}, {{"approximate", approximate}});
}
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return apply1(kLeakyRelu, {x}, {{"negative_slope", negative_slope}});
}
Tensor elu(const Tensor& x, double alpha) { return apply1(kElu, {x}, {{"alpha", alpha}}); }

}  // namespace troupe::ops
