#include "ops/logic.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/promote.h"
#include "ops/gradient_rules.h"
#include "ops/reduce.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

void require_bool(const Call& c, const Tensor& t) {
  if (t.dtype() != boolean)
    reject(c, fmt::format("needs bool, got {}; compare it first: .ne(0)", t.summary()));
}

Specs logical_spec(const Call& c) {
  for (const Tensor& t : c.in) require_bool(c, t);
  return c.in.size() == 1 ? same_spec(c) : comparison(c);
}

Tensor flags(const Tensor& x) { return x.defined() ? to(x, boolean) : x; }

Tensor count(const Call& c, const Tensor& x) {
  return apply1(kSum, {x}, {{"dim", c.attrs.ints("dim")}, {"keepdim", c.attrs.flag("keepdim")}});
}

Tensor answer(const Call& c, const Tensor& yes) { return c.in[0].dtype() == uint8 ? to(yes, uint8) : yes; }

Tensors filled(const Call& c) {
  const Tensor &x = c.in[0], &mask = c.in[1];
  require_bool(c, mask);
  return {where(mask, tensor(c.attrs.scalar("value"), x.options()), x)};
}

Tensor alternating(const Shape& shape, uint64_t seed = 2) {
  return gt(sample(shape, -1, 1, seed), tensor(0, float64));
}
std::vector<Sample> two_flags() {
  return {{{alternating({3, 4}), alternating({4}, 3)}}, {{alternating({}), alternating({2, 0}, 3)}}};
}
std::vector<Sample> with_special_values() {
  return {{{tensor({0, -1.5, HUGE_VAL, -HUGE_VAL, std::nan("")}, float64)}},
          {{tensor({{0}, {3}})}},
          {{alternating({2})}}};
}
std::vector<Sample> flags_over_dims() {
  const Tensor x = tensor({{0, 1}, {0, -2}, {0, 3}}, float64);
  return {{{x}},
          {{x}, {{"dim", std::vector<int64_t>{0}}}},
          {{x}, {{"dim", std::vector<int64_t>{-1}}, {"keepdim", true}}},
          {{alternating({2, 3})}, {{"dim", std::vector<int64_t>{1}}}},
          {{sample({0, 2})}, {{"dim", std::vector<int64_t>{0}}}}};
}
void require_bools(const char* op, const char* instead, const Tensor& a, const Tensor& b) {
  for (const Tensor* t : {&a, &b})
    if (t->defined() && t->dtype() != boolean)
      throw_invalid(fmt::format("[{}] is for bool tensors here, got {}; use {}() on numbers", op,
                                t->summary(), instead));
}

// A bool beside x.
Tensor bool_beside(const char* op, const Tensor& x, const Scalar& b) {
  if (!b.is_boolean())
    throw_invalid(fmt::format("[{}] is for bools here, got {}; use true or false", op, b.str()));
  return x.defined() ? wrapped(b, boolean, x.device()) : x;
}

void require_one_dtype(const char* op, const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) throw_invalid(fmt::format("[{}] got an undefined tensor", op));
  if (a.dtype() != b.dtype())
    throw_invalid(fmt::format("[{}] inputs differ in dtype: {} and {}; use .to() on one of them", op,
                              a.summary(), b.summary()));
}

}  // namespace

const Op kLogicalAnd{.name = "logical_and",
                     .inputs = "input other",
                     .text = "Whether both elements are not 0.",
                     .shape = logical_spec,
                     .function = [](std::span<const Tensor> in, const Attrs&) -> Tensors {
                       return {logical_and(in[0], in[1])};
                     },
                     .samples = two_flags};
const Op kLogicalOr{.name = "logical_or",
                    .inputs = "input other",
                    .text = "Whether one of two elements is not 0.",
                    .shape = logical_spec,
                    .function = [](std::span<const Tensor> in, const Attrs&) -> Tensors {
                      return {logical_or(in[0], in[1])};
                    },
                    .samples = two_flags};
const Op kLogicalNot{
    .name = "logical_not",
    .text = "Whether each element is 0.",
    .shape = logical_spec,
    .function = [](std::span<const Tensor> in, const Attrs&) -> Tensors { return {logical_not(in[0])}; },
    .samples = []() -> std::vector<Sample> {
      return {{{alternating({3, 4})}}};
    }};

const Op kIsnan{.name = "isnan",
                .text = "Whether each element is NaN.",
                .compose = [](const Call& c) -> Tensors { return {ne(c.in[0], c.in[0])}; },
                .takes_half = true,
                .samples = with_special_values};

// The difference of an infinity and itself is NaN.
const Op kIsfinite{.name = "isfinite",
                   .text = "Whether each element is neither NaN nor infinite.",
                   .compose = [](const Call& c) -> Tensors {
                     const Tensor& x = c.in[0];
                     if (!is_floating(x.dtype())) return {eq(x, x)};
                     return {eq(sub(x, x), 0.0)};
                   },
                   .takes_half = true,
                   .samples = with_special_values};

const Op kAny{
    .name = "any",
    .text = "Whether some element over dim (none: all dimensions) is not 0.",
    .attrs = dims_and_keepdim(),
    .compose = [](const Call& c) -> Tensors { return {answer(c, ne(count(c, flags(c.in[0])), 0))}; },
    .takes_half = true,
    .samples = flags_over_dims};

const Op kAllOf{
    .name = "all",
    .text = "Whether each element over dim (none: all dimensions) is not 0.",
    .attrs = dims_and_keepdim(),
    .compose = [](const Call& c) -> Tensors { return {answer(c, eq(count(c, logical_not(c.in[0])), 0))}; },
    .takes_half = true,
    .samples = flags_over_dims};

const Op kMaskedFill{.name = "masked_fill",
                     .inputs = "input mask",
                     .text = "input, with value where mask is true.",
                     .internal = true,  // the function also takes a tensor as the value
                     .attrs = {{"value", Scalar(0)}},
                     .compose = filled,
                     .takes_half = true,
                     .samples = []() -> std::vector<Sample> {
                       return {{{sample({3, 4}), alternating({3, 4})}, {{"value", -1.5}}},
                               {{sample({2, 3, 4}), alternating({3, 1})}, {{"value", 3.0}}},
                               {{sample({0, 4}), alternating({4})}}};
                     }};

Tensor logical_and(const Tensor& a, const Tensor& b) { return apply1(kLogicalAnd, {flags(a), flags(b)}); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return apply1(kLogicalOr, {flags(a), flags(b)}); }
Tensor logical_not(const Tensor& x) { return apply1(kLogicalNot, {flags(x)}); }
Tensor bitwise_and(const Tensor& a, const Tensor& b) {
  return require_bools("bitwise_and", "logical_and", a, b), logical_and(a, b);
}
Tensor bitwise_or(const Tensor& a, const Tensor& b) {
  return require_bools("bitwise_or", "logical_or", a, b), logical_or(a, b);
}
Tensor bitwise_xor(const Tensor& a, const Tensor& b) {
  return require_bools("bitwise_xor", "ne", a, b), ne(a, b);
}
Tensor bitwise_and(const Tensor& a, Scalar b) { return bitwise_and(a, bool_beside("bitwise_and", a, b)); }
Tensor bitwise_or(const Tensor& a, Scalar b) { return bitwise_or(a, bool_beside("bitwise_or", a, b)); }
Tensor bitwise_xor(const Tensor& a, Scalar b) { return bitwise_xor(a, bool_beside("bitwise_xor", a, b)); }
Tensor bitwise_not(const Tensor& x) {
  return require_bools("bitwise_not", "logical_not", x, x), logical_not(x);
}

namespace {
Tensor near_or_equal(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  const Tensor x = a.detach(), y = b.detach();
  Tensor close = eq(x, y);
  if (equal_nan) close = logical_or(close, logical_and(isnan(x), isnan(y)));
  if (x.dtype() == boolean) return close;
  const Tensor error = abs(sub(x, y)), allowed = add(abs(mul(y, rtol)), atol);
  return logical_or(close, logical_and(isfinite(error), le(error, allowed)));
}
}  // namespace

Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  require_one_dtype("isclose", a, b);
  if (!(rtol >= 0 && atol >= 0))
    throw_invalid(fmt::format("[isclose] rtol and atol must be at least 0, got {} and {}", rtol, atol));
  return near_or_equal(a, b, rtol, atol, equal_nan);
}
bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  require_one_dtype("allclose", a, b);
  return all(near_or_equal(a, b, rtol, atol, equal_nan)).item<bool>();
}
bool equal(const Tensor& a, const Tensor& b) {
  require_one_dtype("equal", a, b);
  return a.shape() == b.shape() && all(eq(a, b)).item<bool>();
}

Tensor isinf(const Tensor& x) {
  if (!x.defined() || !is_floating(x.dtype())) return logical_not(isfinite(x));
  return eq(abs(x.detach()), std::numeric_limits<double>::infinity());
}
Tensor isnan(const Tensor& x) { return apply1(kIsnan, {x}); }
Tensor isfinite(const Tensor& x) { return apply1(kIsfinite, {x}); }
Tensor any(const Tensor& x, const IntList& dim, bool keepdim) {
  return apply1(kAny, {x}, {{"dim", dim}, {"keepdim", keepdim}});
}
Tensor all(const Tensor& x, const IntList& dim, bool keepdim) {
  return apply1(kAllOf, {x}, {{"dim", dim}, {"keepdim", keepdim}});
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  return apply1(kMaskedFill, {x, mask}, {{"value", value}});
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  if (!x.defined() || !mask.defined() || !value.defined()) return masked_fill(x, mask, 0);  // says which one
  if (value.dim() != 0)
    throw_invalid(
        fmt::format("[masked_fill] the value must be a number or a 0-d tensor, got {}", value.summary()));
  if (mask.dtype() != boolean)
    throw_invalid(
        fmt::format("[masked_fill] the mask must be bool, got {}; compare it first: .ne(0)", mask.summary()));
  if (is_narrow_integer(x.dtype()) && value.dtype() != x.dtype())
    require_fits(value.item<int64_t>(), x.dtype(), "masked_fill");
  return where(mask, to(value, x.dtype()), x);
}

}  // namespace troupe::ops
