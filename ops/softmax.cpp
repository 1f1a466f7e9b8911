#include "ops/softmax.h"

#include "ops/arithmetic.h"
#include "ops/gradient_rules.h"
#include "ops/reduce.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

Specs softmax_spec(const Call& c) {
  c.in[0].shape().axis(c.attrs.integer("dim"), c.name());
  return floating_unary(c);
}

Specs softmax_gradient_spec(const Call& c) {
  require_same_dtype(c);
  require_same_shape(c, c.in[0], c.in[1]);
  return softmax_spec(c);
}

Tensor along(const Backward& b, const Op& op, const Tensor& g, const Tensor& y) {
  return apply1(op, {g, y}, {{"dim", b.attrs.integer("dim")}});
}
Tensor total(const Backward& b, const Tensor& x) {
  return x.dim() == 0 ? x : sum(x, {b.attrs.integer("dim")}, true);
}

// Gradients of the gradients, in several steps.
Tensors softmax_second(const Backward& b) {
  const Tensor &gg = b.grads[0], &g = b.in[0], &y = b.in[1];
  Tensors out(2);
  if (b.needs(0)) out[0] = along(b, kSoftmaxGrad, gg, y);
  if (b.needs(1)) out[1] = sub(mul(gg, sub(g, total(b, mul(g, y)))), mul(g, total(b, mul(gg, y))));
  return out;
}
Tensors log_softmax_second(const Backward& b) {
  const Tensor &gg = b.grads[0], p = exp(b.in[1]);
  const Tensor weighted = mul(gg, p);
  Tensors out(2);
  if (b.needs(0)) out[0] = sub(gg, total(b, weighted));
  if (b.needs(1)) out[1] = neg(mul(weighted, total(b, b.in[0])));
  return out;
}

std::vector<Sample> three_dims() {
  std::vector<Sample> all;
  for (int64_t dim : {0, 1, -1}) all.push_back({{sample({2, 3, 4})}, {{"dim", dim}}});
  all.push_back({{sample({0, 3})}, {{"dim", int64_t{1}}}});
  return all;
}

std::vector<Sample> gradients() {
  std::vector<Sample> all;
  for (int64_t dim : {0, 1}) all.push_back({{sample({3, 4}), sample({3, 4}, -1, 0.9, 1)}, {{"dim", dim}}});
  return all;
}

const Attrs kDim{{"dim", int64_t{-1}}};

}  // namespace

const Op kSoftmax{
    .name = "softmax",
    .text = "exp(x) divided by its sum along dim.",
    .internal = true,  // the function has dtype
    .attrs = kDim,
    .shape = softmax_spec,
    .saves_outputs = 1,
    .gradient = [](const Backward& b) -> Tensors { return {along(b, kSoftmaxGrad, b.grads[0], b.out[0])}; },
    .samples = three_dims};

// y (g - sum(g y)): linear and symmetric in g.
const Op kSoftmaxGrad{.name = "softmax_grad",
                      .inputs = "grad result",
                      .text = "Gradient of softmax from its result.",
                      .internal = true,
                      .attrs = kDim,
                      .shape = softmax_gradient_spec,
                      .saves_inputs = 0b11,
                      .gradient = [](const Backward& b) { return rounded_once(b, softmax_second); },
                      .samples = gradients};

const Op kLogSoftmax{.name = "log_softmax",
                     .text = "The logarithm of softmax along dim.",
                     .internal = true,  // the function has dtype
                     .attrs = kDim,
                     .shape = softmax_spec,
                     .saves_outputs = 1,
                     .gradient = [](const Backward& b) -> Tensors {
                       return {along(b, kLogSoftmaxGrad, b.grads[0], b.out[0])};
                     },
                     .samples = three_dims};

// g - exp(y) sum(g).
const Op kLogSoftmaxGrad{.name = "log_softmax_grad",
                         .inputs = "grad result",
                         .text = "Gradient of log_softmax from its result.",
                         .internal = true,
                         .attrs = kDim,
                         .shape = softmax_gradient_spec,
                         .saves_inputs = 0b11,
                         .gradient = [](const Backward& b) { return rounded_once(b, log_softmax_second); },
                         .samples = gradients};

Tensor softmax(const Tensor& x, int64_t dim) { return apply1(kSoftmax, {x}, {{"dim", dim}}); }
Tensor log_softmax(const Tensor& x, int64_t dim) { return apply1(kLogSoftmax, {x}, {{"dim", dim}}); }

Tensor softmax(const Tensor& x, int64_t dim, DType dtype) { return softmax(to(x, dtype), dim); }
Tensor log_softmax(const Tensor& x, int64_t dim, DType dtype) { return log_softmax(to(x, dtype), dim); }

}  // namespace troupe::ops
