#include "ops/reduce.h"

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/cumulative.h"
#include "ops/dispatch/promote.h"
#include "ops/gradient_rules.h"
#include "ops/index.h"
#include "ops/nonzero.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

using Flags = std::array<bool, kMaxDims>;

Flags flags_of(const Call& c) { return dim_flags(c, c.in[0].shape(), c.attrs.ints("dim")); }
Flags flags_of(const Backward& b) {
  const Call c{b.op, {}, b.attrs};
  return dim_flags(c, b.shape(0), b.attrs.ints("dim"));
}

int64_t reduced_count(const Shape& shape, const Flags& reduced) {
  int64_t n = 1;
  for (int i = 0; i < shape.rank(); ++i) n *= reduced[i] ? shape[i] : 1;
  return n;
}

Shape reduced_shape(const Shape& x, const Flags& reduced, bool keepdim) {
  if (keepdim) return keep_reduced(x, reduced);
  Shape out;
  for (int i = 0; i < x.rank(); ++i)
    if (!reduced[i]) out.push_back(x[i]);
  return out;
}

Specs floating_spec(const Call& c) {
  require_floating(c, c.in[0]);
  return {{reduced_shape(c.in[0].shape(), flags_of(c), c.attrs.flag("keepdim")), c.in[0].dtype()}};
}

// The result of halves is float32: the function rounds it.
Specs logsumexp_spec(const Call& c) {
  Specs all = floating_spec(c);
  all[0].dtype = compute_dtype(all[0].dtype);
  return all;
}

Specs sum_spec(const Call& c) {
  const DType t = c.in[0].dtype();
  return {{reduced_shape(c.in[0].shape(), flags_of(c), c.attrs.flag("keepdim")), is_floating(t) ? t : int64}};
}

Specs extremum_spec(const Call& c) {
  if (reduced_count(c.in[0].shape(), flags_of(c)) == 0)
    reject(c, "of no elements: shape " + c.in[0].shape().str());
  return {{reduced_shape(c.in[0].shape(), flags_of(c), c.attrs.flag("keepdim")), c.in[0].dtype()}};
}

Specs argmax_spec(const Call& c) {
  const Shape& x = c.in[0].shape();
  if (c.in[0].dtype() == boolean) reject(c, "is not for " + c.in[0].summary() + "; use .to(int64)");
  const int dim = x.axis(c.attrs.integer("dim"), c.name());
  Shape out = x;
  if (x.rank()) {
    if (x[dim] == 0) reject(c, "of no elements: shape " + x.str());
    out[dim] = 1;
    if (!c.attrs.flag("keepdim")) out.erase(dim);
  }
  return {{out, int64}};
}

Specs cumsum_spec(const Call& c) {
  const DType t = c.in[0].dtype();
  c.in[0].shape().axis(c.attrs.integer("dim"), c.name());
  return {{c.in[0].shape(), is_floating(t) ? t : int64}};
}

// The gradient of the result, repeated over what was reduced.
Tensor spread(const Backward& b, const Tensor& g) { return spread_over(g, b.shape(0), flags_of(b)); }

Tensors extremum_gradient(const Backward& b) {
  const Flags reduced = flags_of(b);
  const Tensor g = restore_dims(b.grads[0], b.shape(0), reduced),
               y = restore_dims(b.out[0], b.shape(0), reduced);
  std::vector<int64_t> dims;
  for (int i = 0; i < b.shape(0).rank(); ++i)
    if (reduced[i]) dims.push_back(i);
  const Tensor hit = to(eq(b.in[0], y), y.dtype());
  return {mul(div(hit, sum(hit, dims, true)), g)};  // a NaN hits nothing, which makes all NaN
}

// g: of the variance.
Tensor var_gradient(const Backward& b, const Tensor& g) {
  const Tensor& x = b.in[0];
  const Flags reduced = flags_of(b);
  const int64_t n = reduced_count(b.shape(0), reduced) - (b.attrs.flag("unbiased") ? 1 : 0);
  const Tensor centred = sub(x, mean(x, b.attrs.ints("dim"), true));
  const Tensor spread = restore_dims(g, b.shape(0), reduced);
  if (n <= 0 && (x.dim() == 0 || b.attrs.ints("dim").empty())) {  // as PyTorch has it
    constexpr double kInf = std::numeric_limits<double>::infinity(),
                     kNan = std::numeric_limits<double>::quiet_NaN();
    return mul(spread, where(eq(x.detach(), mean(x.detach(), {}, true)), tensor(kNan, x.options()),
                             tensor(kInf, x.options())));
  }
  return mul(centred, mul(spread, 2.0 / static_cast<double>(n)));
}

// PyTorch's formulae, so that infinities and NaN give the same: from the result; but if there are zeros, the
// product of the other elements, from both sides. Two zeros make that 0 everywhere, but not its derivative.
Tensors prod_gradient(const Backward& b) {
  const Tensor& x = b.in[0];
  const Flags reduced = flags_of(b);
  const Tensor g = restore_dims(b.grads[0], x.shape(), reduced);
  if (x.dim() == 0) return {g};
  const int64_t zeros = x.numel() - count_nonzero(x.detach()).to_vector<int64_t>()[0];
  if (zeros == 0) return {mul(g, div(restore_dims(b.out[0], x.shape(), reduced), x))};
  if (zeros > 1 && b.attrs.ints("dim").empty() && !grad_enabled()) return {zeros_like(x)};
  std::vector<int64_t> order, back(static_cast<size_t>(x.dim()));  // the reduced dimensions behind the others
  for (const bool wanted : {false, true})
    for (int i = 0; i < x.dim(); ++i)
      if (reduced[i] == wanted) {
        back[static_cast<size_t>(i)] = std::ssize(order);
        order.push_back(i);
      }
  const Tensor moved = permute(x, order);
  const int64_t n = reduced_count(x.shape(), reduced);
  const Tensor rows = reshape(moved, {-1, n}), one = ones({rows.size(0), 1}, x.options());
  const Tensor before = cumprod(cat({one, slice(rows, 1, 0, n - 1)}, 1), 1);
  const Tensor behind = flip(cumprod(cat({one, flip(slice(rows, 1, 1, n), {1})}, 1), 1), {1});
  const Tensor others = permute(reshape(mul(before, behind), to_list(moved.shape())), back);
  return {mul(g, others)};
}

std::vector<Sample> over_dims() {
  const Tensor x = sample({2, 3, 4});
  return {{{x}, {{"dim", std::vector<int64_t>{0}}}},
          {{x}, {{"dim", std::vector<int64_t>{-1}}, {"keepdim", true}}},
          {{x}, {{"dim", std::vector<int64_t>{0, 2}}}},
          {{x}, {{"dim", std::vector<int64_t>{1}}}},
          {{x}}};
}

Op extremum(const char* name, const char* text) {
  return {.name = name,
          .text = text,
          .attrs = dims_and_keepdim(),
          .shape = extremum_spec,
          .saves_inputs = 1,
          .saves_outputs = 1,
          .gradient = rounding_once<extremum_gradient>,
          .widens_bool = true,
          .samples = over_dims};
}

Op extremum_place(const char* name, const char* text) {
  return {.name = name,
          .text = text,
          .internal = true,
          .attrs = {{"dim", -1}, {"keepdim", false}},
          .shape = argmax_spec,
          .takes_half = true,
          .samples = []() -> std::vector<Sample> {
            return {{{sample({3, 4})}, {{"dim", 0}}}, {{sample({3, 4})}, {{"dim", 1}}}};
          }};
}

}  // namespace

const Op kSum{.name = "sum",
              .text = "The sum over dim (none: all dimensions).",
              .internal = true,  // the function has dtype
              .attrs = dims_and_keepdim(),
              .shape = sum_spec,
              .gradient = [](const Backward& b) -> Tensors { return {spread(b, b.grads[0])}; },
              .samples = over_dims};

const Op kMean{.name = "mean",
               .text = "The mean over dim (none: all dimensions).",
               .internal = true,  // the function has dtype
               .attrs = dims_and_keepdim(),
               .shape = floating_spec,
               .gradient = [](const Backward& b) -> Tensors {
                 const int64_t n = reduced_count(b.shape(0), flags_of(b));
                 return {spread(b, div(b.grads[0], n))};
               },
               .samples = over_dims};

const Op kAmax = extremum("amax", "The largest elements over dim (none: all dimensions).");
const Op kAmin = extremum("amin", "The smallest elements over dim (none: all dimensions).");

const Op kLogsumexp{.name = "logsumexp",
                    .text = "The logarithm of the sum of exp over dim (none: all dimensions).",
                    .attrs = dims_and_keepdim(),
                    .shape = logsumexp_spec,
                    .saves_inputs = 1,
                    .saves_outputs = 1,
                    .gradient = rounding_once<[](const Backward& b) -> Tensors {
                      const Flags reduced = flags_of(b);
                      const Tensor y = restore_dims(b.out[0], b.shape(0), reduced);
                      return {mul(exp(sub(b.in[0], y)), restore_dims(b.grads[0], b.shape(0), reduced))};
                    }>,
                    .promotes = Promotion::floating,
                    .function = [](std::span<const Tensor> in, const Attrs& a) -> Tensors {
                      return {logsumexp(in[0], a.ints("dim"), a.flag("keepdim"))};
                    },
                    .samples = over_dims};

const Op kVar{
    .name = "var",
    .text = "The variance over dim (none: all dimensions).",
    .internal = true,  // the function has correction
    .attrs = {{"dim", std::vector<int64_t>{}}, {"unbiased", true}, {"keepdim", false}},
    .shape = floating_spec,
    .saves_inputs = 1,
    .gradient = rounding_once<[](const Backward& b) -> Tensors { return {var_gradient(b, b.grads[0])}; }>,
    .samples = over_dims};

const Op kStd{.name = "std",
              .text = "The standard deviation over dim (none: all dimensions).",
              .internal = true,  // the function has correction
              .attrs = kVar.attrs,
              .shape = floating_spec,
              .saves_inputs = 1,
              .saves_outputs = 1,
              .gradient = rounding_once<[](const Backward& b) -> Tensors {
                const Tensor slope = div(b.grads[0], mul(b.out[0], 2.0));
                return {var_gradient(b, where(eq(b.out[0], 0.0), 0.0, slope))};
              }>,
              .samples = over_dims};

const Op kProd{.name = "prod",
               .text = "The product over dim (none: all dimensions).",
               .internal = true,  // the function has dtype
               .attrs = dims_and_keepdim(),
               .shape = sum_spec,
               .saves_inputs = 1,
               .saves_outputs = 1,
               .gradient = rounding_once<prod_gradient>,
               .widens_bool = true,
               .samples = []() -> std::vector<Sample> {
                 auto all = over_dims();
                 const Tensor zeros = tensor({{2, 0, -3}, {0, 0, 1.5}, {1, -2, 4}}, float64);
                 all.push_back({{zeros}, {{"dim", std::vector<int64_t>{1}}}});
                 all.push_back({{zeros}, {{"dim", std::vector<int64_t>{0}}, {"keepdim", true}}});
                 all.push_back({{reshape(zeros, {1, 3, 3})}, {{"dim", std::vector<int64_t>{0, 2}}}});
                 for (const int64_t rows : {1, 2}) all.push_back({{slice(zeros, 0, 0, rows)}});
                 all.push_back({{tensor({2, 3, 0, 0}, float64)}});
                 all.push_back({{sample({2, 0})}, {{"dim", std::vector<int64_t>{1}}}});
                 all.push_back({{sample({})}});
                 return all;
               }};

const Op kArgmax = extremum_place("argmax", "The places of the largest elements along dim.");
const Op kArgmin = extremum_place("argmin", "The places of the smallest elements along dim.");

const Op kNorm{.name = "norm",
               .text = "The Euclidean norm of all elements.",
               .internal = true,
               .shape = [](const Call& c) -> Specs {
                 require_floating(c, c.in[0]);
                 return {{Shape{}, c.in[0].dtype()}};
               },
               .saves_inputs = 1,
               .saves_outputs = 1,
               .gradient = rounding_once<[](const Backward& b) -> Tensors {
                 // 0 where the norm is 0, with a derivative that is NaN there, as in PyTorch.
                 return {where(eq(b.out[0], 0.0), 0.0, mul(b.in[0], div(b.grads[0], b.out[0])))};
               }>,
               .samples = []() -> std::vector<Sample> {
                 return {{{sample({3, 4})}}};
               }};

const Op kCumsum{
    .name = "cumsum",
    .text = "Sums of the first elements along dim.",
    .internal = true,  // the function has dtype
    .attrs = {{"dim", int64_t{-1}}},
    .shape = cumsum_spec,
    .gradient = [](const Backward& b) -> Tensors {
      const int64_t dim = b.attrs.integer("dim");
      if (b.shape(0).rank() == 0) return {b.grads[0]};
      return {flip(cumsum(flip(b.grads[0], {dim}), dim), {dim})};
    },
    .widens_bool = true,
    .samples = []() -> std::vector<Sample> {
      return {{{sample({2, 3, 4})}, {{"dim", int64_t{1}}}}, {{sample({3})}, {{"dim", int64_t{-1}}}}};
    }};

Tensor sum(const Tensor& x) { return apply1(kSum, {x}); }
Tensor mean(const Tensor& x) { return apply1(kMean, {x}); }
Tensor sum(const Tensor& x, const IntList& dim, bool keepdim) {
  return apply1(kSum, {x}, {{"dim", dim}, {"keepdim", keepdim}});
}
Tensor mean(const Tensor& x, const IntList& dim, bool keepdim) {
  return apply1(kMean, {x}, {{"dim", dim}, {"keepdim", keepdim}});
}
Tensor amax(const Tensor& x, const IntList& dim, bool keepdim) {
  return apply1(kAmax, {x}, {{"dim", dim}, {"keepdim", keepdim}});
}
Tensor amin(const Tensor& x, const IntList& dim, bool keepdim) {
  return apply1(kAmin, {x}, {{"dim", dim}, {"keepdim", keepdim}});
}
// The gradient's exponentials are of differences from the result, which is not to be rounded to a half.
Tensor logsumexp(const Tensor& x, const IntList& dim, bool keepdim) {
  const Tensor y = apply1(kLogsumexp, {x}, {{"dim", dim}, {"keepdim", keepdim}});
  return is_half(x.dtype()) ? to(y, x.dtype()) : y;
}
Tensor var(const Tensor& x, const IntList& dim, bool unbiased, bool keepdim) {
  return apply1(kVar, {x}, {{"dim", dim}, {"unbiased", unbiased}, {"keepdim", keepdim}});
}
Tensor std(const Tensor& x, const IntList& dim, bool unbiased, bool keepdim) {
  return apply1(kStd, {x}, {{"dim", dim}, {"unbiased", unbiased}, {"keepdim", keepdim}});
}
Tensor prod(const Tensor& x, const IntList& dim, bool keepdim) {
  return apply1(kProd, {x}, {{"dim", dim}, {"keepdim", keepdim}});
}
Tensor argmin(const Tensor& x, int64_t dim, bool keepdim) {
  return apply1(kArgmin, {x}, {{"dim", dim}, {"keepdim", keepdim}});
}
Tensor argmax(const Tensor& x, int64_t dim, bool keepdim) {
  return apply1(kArgmax, {x}, {{"dim", dim}, {"keepdim", keepdim}});
}
Tensor norm(const Tensor& x) { return apply1(kNorm, {x}); }
Tensor norm(const Tensor& x, Scalar p, const IntList& dim, bool keepdim) {
  const double power = p.to<double>();
  if (!x.defined() || (power == 2 && dim.empty() && !keepdim)) return norm(x);
  if (!is_floating(x.dtype()))
    throw_invalid("[norm] needs a floating dtype, got " + x.summary() + "; use .to()");
  if (is_half(x.dtype()))  // a square or a sum of powers may be beyond it, where the norm is not
    return rounded_once(x.dtype(), [&](DType wide) { return norm(to(x, wide), p, dim, keepdim); });
  const Tensor size = abs(x);
  if (std::isinf(power)) return power > 0 ? amax(size, dim, keepdim) : amin(size, dim, keepdim);
  if (power == 0) return sum(where(ne(x, 0), 1, sign(x)), dim, keepdim);  // a count, with a gradient of 0
  if (power == 1) return sum(size, dim, keepdim);
  // Roots have no slope at 0. As in PyTorch the gradient is 0 there, that of an element, where its power is a
  // root, and that of a sum; the second derivative is NaN. t^1.5 has both.
  Tensor powers = power == 2 ? square(x) : pow(size, power);
  if (power > 0 && power < 1) {
    const Tensor zero = eq(x, 0);
    powers = where(zero, pow(where(zero, size, 1), 1.5), pow(where(zero, 1, size), power));
  }
  const Tensor total = sum(powers, dim, keepdim), none = eq(total, 0), safe = where(none, 1, total);
  const Tensor nothing = power > 2 ? total : pow(where(none, total, 0), 1.5);
  return where(none, nothing, power == 2 ? sqrt(safe) : pow(safe, 1 / power));
}
Tensor cumsum(const Tensor& x, int64_t dim) { return apply1(kCumsum, {x}, {{"dim", dim}}); }

Tensor sum(const Tensor& x, const IntList& dim, bool keepdim, DType dtype) {
  return to(sum(to(x, dtype), dim, keepdim), dtype);
}
Tensor mean(const Tensor& x, const IntList& dim, bool keepdim, DType dtype) {
  return mean(to(x, dtype), dim, keepdim);
}
Tensor prod(const Tensor& x, const IntList& dim, bool keepdim, DType dtype) {
  return to(prod(to(x, dtype), dim, keepdim), dtype);
}
Tensor norm(const Tensor& x, Scalar p, const IntList& dim, bool keepdim, DType dtype) {
  return norm(to(x, dtype), p, dim, keepdim);
}
Tensor cumsum(const Tensor& x, int64_t dim, DType dtype) { return to(cumsum(to(x, dtype), dim), dtype); }

}  // namespace troupe::ops
