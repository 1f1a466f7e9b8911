#include "ops/cumulative.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/gradient_rules.h"
#include "ops/index.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

Specs cumprod_spec(const Call& c) {
  const DType t = c.in[0].dtype();
  c.in[0].shape().axis(c.attrs.integer("dim"), c.name());
  return {{c.in[0].shape(), is_floating(t) ? t : int64}};
}

Specs cumprod_grad_spec(const Call& c) {
  require_floating(c, c.in[0]);
  require_same_dtype(c);
  for (size_t i : {1, 2}) require_same_shape(c, c.in[0], c.in[i]);
  return cumprod_spec(c);
}

// Of x[k]: the product before it times s[k], where s[k] = g[k] + x[k + 1] s[k + 1].
Tensor recorded_gradient(const Backward& b) {
  const Tensor &g = b.grads[0], &x = b.in[0], &y = b.out[0];
  const int64_t dim = b.attrs.integer("dim"), n = x.size(dim);
  const auto at = [dim](const Tensor& t, int64_t i) { return slice(t, dim, i, i + 1); };
  Tensors parts(static_cast<size_t>(n));
  Tensor s;
  for (int64_t k = n - 1; k >= 0; --k) {
    s = s.defined() ? add(at(g, k), mul(at(x, k + 1), s)) : at(g, k);
    parts[static_cast<size_t>(k)] = k ? mul(at(y, k - 1), s) : s;
  }
  return cat(parts, dim);
}

Tensors cumprod_gradient(const Backward& b) {
  const Shape& shape = b.shape(0);
  if (shape.numel() < 2 || shape[shape.axis(b.attrs.integer("dim"), "cumprod")] == 1) return {b.grads[0]};
  if (grad_enabled()) return {recorded_gradient(b)};
  return {apply1(kCumprodGrad, {b.grads[0], b.in[0], b.out[0]}, b.attrs)};
}

Tensor with_zeros() { return tensor({{2, 0, -3}, {0, 0, 1.5}, {1, -2, 4}}, float64); }

}  // namespace

const Op kCumprod{.name = "cumprod",
                  .text = "Products of the first elements along dim.",
                  .internal = true,  // the function has dtype
                  .attrs = {{"dim", -1}},
                  .shape = cumprod_spec,
                  .saves_inputs = 1,
                  .saves_outputs = 1,
                  .gradient = cumprod_gradient,
                  .samples = []() -> std::vector<Sample> {
                    return {{{sample({2, 3, 4})}, {{"dim", 1}}},
                            {{with_zeros()}},
                            {{with_zeros()}, {{"dim", 0}}},
                            {{sample({})}},
                            {{sample({2, 0})}},
                            {{tensor({2, -3, 4})}}};
                  }};

const Op kCumprodGrad{.name = "cumprod_grad",
                      .inputs = "grad input result",
                      .text = "Gradient of cumprod.",
                      .internal = true,
                      .attrs = {{"dim", -1}},
                      .shape = cumprod_grad_spec,
                      .samples = []() -> std::vector<Sample> {
                        const Tensor x = sample({2, 3, 4}, 0.5, 2, 1);
                        return {{{sample({2, 3, 4}), x, cumprod(x, 1)}, {{"dim", 1}}},
                                {{sample({3, 3}), with_zeros(), cumprod(with_zeros(), -1)}}};
                      }};

Tensor cumprod(const Tensor& x, int64_t dim) { return apply1(kCumprod, {x}, {{"dim", dim}}); }
Tensor cumprod(const Tensor& x, int64_t dim, DType dtype) { return to(cumprod(to(x, dtype), dim), dtype); }

Tensor diff(const Tensor& x, int64_t n, int64_t dim) {
  if (!x.defined()) throw_invalid("[diff] got an undefined tensor");
  if (x.dim() == 0) throw_invalid("[diff] needs at least one dimension, got a 0-d tensor");
  if (n < 0) throw_invalid(fmt::format("[diff] n must be at least 0, got {}", n));
  const int d = x.shape().axis(dim, "diff");
  if (n == 0) return clone(x);
  Tensor y = x;  // and the result where x has no elements, as in PyTorch
  for (int64_t size = x.shape()[d]; n > 0 && size > 0; --n, --size) {
    const Tensor after = slice(y, d, 1, size), before = slice(y, d, 0, size - 1);
    y = x.dtype() == boolean ? ne(after, before) : sub(after, before);
  }
  return y;
}

}  // namespace troupe::ops
