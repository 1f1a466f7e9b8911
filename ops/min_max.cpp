#include "ops/min_max.h"

#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/gradient_rules.h"
#include "ops/index.h"
#include "ops/logic.h"
#include "ops/reduce.h"
#include "ops/reshape_ops.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

Specs whole_spec(const Call& c) {
  if (c.in[0].numel() == 0) reject(c, "of no elements: shape " + c.in[0].shape().str());
  return {{Shape{}, c.in[0].dtype()}};
}

Specs median_spec(const Call& c) {
  const Tensor& x = c.in[0];
  if (x.dtype() == boolean) reject(c, "is not for " + x.summary() + "; use .to(int64)");
  if (x.numel() == 0 && !is_floating(x.dtype())) reject(c, "of no elements: shape " + x.shape().str());
  return {{Shape{}, x.dtype()}};
}

Specs along_spec(const Call& c) {
  Shape out = c.in[0].shape();
  const int dim = out.axis(c.attrs.integer("dim"), c.name());
  if (!out.empty()) {
    if (out[dim] == 0) reject(c, "of no elements: shape " + out.str());
    out[dim] = 1;
    if (!c.attrs.flag("keepdim")) out.erase(dim);
  }
  return {{out, c.in[0].dtype()}, {out, int64}};
}

// The elements that equal the result have equal shares.
Tensors shared(const Backward& b) {
  const Tensor &x = b.in[0], &y = b.out[0];
  const Tensor hit = where(isnan(y), isnan(x), eq(x, y));
  const Tensor share = div(b.grads[0], to(sum(hit), b.in_specs[0].dtype));
  return {where(hit, share, zeros({}, {b.in_specs[0].dtype, b.device()}))};
}

Tensors placed(const Backward& b) {
  const int64_t dim = b.attrs.integer("dim");
  Tensor g = b.grads[0], places = b.out[1];
  if (!b.attrs.flag("keepdim") && b.shape(0).rank()) g = unsqueeze(g, b.shape(0).axis(dim, "max"));
  if (g.dim() > places.dim()) places = unsqueeze(places, b.shape(0).axis(dim, "max"));
  return {scatter_add(zeros(b.shape(0), g.options()), dim, places, g)};
}

Op of_all(const char* name, const char* text, ShapeRule* shape) {
  return {.name = name,
          .text = text,
          .internal = true,
          .shape = shape,
          .saves_inputs = 1,
          .saves_outputs = 1,
          .gradient = shared,
          .samples = []() -> std::vector<Sample> {
            return {{{sample({3, 4})}}, {{sample({3, 3})}}, {{sample({})}}};
          }};
}

Op of_lines(const char* name, const char* text) {
  return {.name = name,
          .text = text,
          .internal = true,
          .attrs = {{"dim", -1}, {"keepdim", false}},
          .shape = along_spec,
          .saves_outputs = 0b10,
          .gradient = placed,
          .takes_half = true,
          .samples = []() -> std::vector<Sample> {
            return {{{sample({2, 3, 4})}, {{"dim", 1}}},
                    {{sample({2, 3, 4})}, {{"dim", -1}, {"keepdim", true}}},
                    {{sample({})}},
                    {{sample({3, 0})}, {{"dim", 0}}}};
          }};
}

ValuesAndIndices along(const Op& op, const Tensor& x, int64_t dim, bool keepdim) {
  return values_and_indices(apply(op, {&x, 1}, {{"dim", dim}, {"keepdim", keepdim}}));
}

}  // namespace

const Op kMax = of_all("max", "The largest element of all.", whole_spec);
const Op kMin = of_all("min", "The smallest element of all.", whole_spec);
const Op kMedian = of_all("median", "The middle element of all.", median_spec);
const Op kMaxAlong = of_lines("max_along", "The largest elements along dim, and their places.");
const Op kMinAlong = of_lines("min_along", "The smallest elements along dim, and their places.");

Tensor max(const Tensor& x) { return apply1(kMax, {x}); }
Tensor min(const Tensor& x) { return apply1(kMin, {x}); }
Tensor max(const Tensor& x, const Tensor& other) { return maximum(x, other); }
Tensor min(const Tensor& x, const Tensor& other) { return minimum(x, other); }
Tensor median(const Tensor& x) { return apply1(kMedian, {x}); }
ValuesAndIndices max(const Tensor& x, int64_t dim, bool keepdim) { return along(kMaxAlong, x, dim, keepdim); }
ValuesAndIndices min(const Tensor& x, int64_t dim, bool keepdim) { return along(kMinAlong, x, dim, keepdim); }

// Sorting puts a NaN last.
ValuesAndIndices median(const Tensor& x, int64_t dim, bool keepdim) {
  const Call c{kMedian, {&x, 1}, kMedian.attrs};
  if (!x.defined()) reject(c, "got an undefined tensor");
  if (x.dtype() == boolean) reject(c, "is not for " + x.summary() + "; use .to(int64)");
  const int d = x.shape().axis(dim, "median");
  const int64_t n = x.dim() ? x.shape()[d] : 1;
  if (n == 0) reject(c, "of no elements: shape " + x.shape().str());
  const Tensor places = argsort(x, dim);
  Tensor at = places;
  if (x.dim()) {
    const Tensor last = slice(places, d, n - 1, n), middle = slice(places, d, (n - 1) / 2, (n - 1) / 2 + 1);
    at = where(isnan(gather(x.detach(), d, last)), last, middle);
  }
  ValuesAndIndices found{gather(x, dim, at), at};
  if (x.dim() && !keepdim) found = {squeeze(found.values, d), squeeze(found.indices, d)};
  return found;
}

Tensor argmax(const Tensor& x) { return argmax(x.defined() ? reshape(x, {x.numel()}) : x, 0); }
Tensor argmin(const Tensor& x) { return argmin(x.defined() ? reshape(x, {x.numel()}) : x, 0); }

}  // namespace troupe::ops
