#include "ops/arithmetic.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/dispatch/promote.h"
#include "ops/gradient_rules.h"
#include "ops/logic.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

std::vector<Sample> two(double low, double high) {
  return {{{sample({3, 4}, low, high), sample({3, 4}, low, high, 1)}},
          {{sample({3, 1}, low, high), sample({2, 1, 4}, low, high, 1)}},
          {{sample({}, low, high), sample({2, 3}, low, high, 1)}},
          {{sample({3, 0}, low, high), sample({1}, low, high, 1)}}};
}
std::vector<Sample> two_any() { return two(-2, 2); }
std::vector<Sample> two_positive() { return two(0.5, 2); }
std::vector<Sample> two_far_from_zero() {
  return {{{sample({3, 4}), sample({4}, 0.5, 2, 1)}}, {{sample({3, 1}), sample({3, 4}, -2, -0.5, 1)}}};
}

// sum_to(mul(g, x), shape), of halves rounded once.
Tensor sum_of_products(const Tensor& g, const Tensor& x, const Shape& shape) {
  if (!is_half(g.dtype()) || g.shape() == shape) return sum_to(mul(g, x), shape);
  return to(sum_to(mul(to(g, float32), to(x, float32)), shape), g.dtype());
}

// Equal elements share it. Beside a NaN both have it whole, as in PyTorch: neither is the smaller one.
Tensors extremum_gradient(const Backward& b, bool larger_wins) {
  const Tensor &x = b.in[0], &y = b.in[1], &g = b.grads[0];
  const Tensor zero = tensor(0, g.options()), shared = where(eq(x, y), mul(g, 0.5), g);
  const Tensor first_loses = larger_wins ? lt(x, y) : gt(x, y),
               second_loses = larger_wins ? gt(x, y) : lt(x, y);
  Tensors out(2);
  if (b.needs(0)) out[0] = sum_to(where(first_loses, zero, shared), b.shape(0));
  if (b.needs(1)) out[1] = sum_to(where(second_loses, zero, shared), b.shape(1));
  return out;
}

void refuse_bool(const char* op, bool any) {
  if (any)
    throw_invalid(fmt::format("[{}] is not for bool; use logical_not() to invert a mask, or .to(int64)", op));
}

Specs sub_spec(const Call& c) {
  refuse_bool(c.name(), c.in[0].dtype() == boolean);
  return numeric_binary(c);
}

// Of a, and of the number in the common dtype.
Tensor with_number(const Op& op, const Tensor& a, const Scalar& value) {
  if (!a.defined()) return apply1(op, {a, a});
  const DType t = result_type(a, value);
  return apply1(op, {to(a, t), wrapped(value, t, a.device())});
}
Tensor with_number(const Op& op, const Scalar& value, const Tensor& a) {
  if (!a.defined()) return apply1(op, {a, a});
  const DType t = result_type(a, value);
  return apply1(op, {wrapped(value, t, a.device()), to(a, t)});
}

Tensor angle_share(const Tensor& g, const Tensor& of, const Tensor& y, const Tensor& x) {
  const Tensor length = add(square(x), square(y));
  return div(mul(g, of), where(eq(length, 0), 1, length));  // 0 at the origin
}

std::vector<Sample> two_apart() {  // quotients away from integers
  return {{{tensor({5.3, -4.1, 7.7, -9.5}, float64), tensor({2, -3, -2.5, 4}, float64)}},
          {{tensor({{5.3}, {-4.1}}, float64), tensor({1.9, -3.3, 0.7}, float64)}}};
}

Specs pow_spec(const Call& c) {
  if (c.in[0].dtype() == boolean) reject(c, "is not for two bool tensors; use .to(int64)");
  return numeric_binary(c);
}
Specs pow_scalar_spec(const Call& c) {
  const Scalar& e = c.attrs.scalar("exponent");
  if (!is_floating(c.in[0].dtype()) && e.to<int64_t>() < 0)
    reject(c, fmt::format("integers have no negative powers, got {} to the power of {}; use .to(float32)",
                          c.in[0].summary(), e.str()));
  return same_spec(c);
}

// What two bools have no answer to.
Specs quotient_spec(const Call& c) {
  refuse_bool(c.name(), c.in[0].dtype() == boolean);
  return numeric_binary(c);
}

template <bool largest>
Op extremum(const char* name, const char* text) {
  return {.name = name,
          .inputs = "input other",
          .text = text,
          .shape = numeric_binary,
          .saves_inputs = 0b11,
          .gradient = [](const Backward& b) { return extremum_gradient(b, largest); },
          .widens_bool = true,
          .promotes = Promotion::common,
          .samples = two_any};
}

Tensor floor_quotient(const Tensor& a, const Tensor& b) { return floor_divide(a, b); }
Tensor cut_quotient(const Tensor& a, const Tensor& b) { return trunc(div(a, b)); }

// The quotient is constant between its jumps.
template <Tensor quotient(const Tensor&, const Tensor&)>
Op rest(const char* name, const char* text, WithNumber* with_number, OfNumber* of_number = nullptr) {
  return {.name = name,
          .inputs = "input other",
          .text = text,
          .shape = quotient_spec,
          .saves_inputs = 0b11,
          .gradient = [](const Backward& b) -> Tensors {
            Tensors out(2);
            if (b.needs(0)) out[0] = sum_to(b.grads[0], b.shape(0));
            if (b.needs(1))
              out[1] = neg(sum_to(mul(b.grads[0], quotient(b.in[0].detach(), b.in[1].detach())), b.shape(1)));
            return out;
          },
          .promotes = Promotion::common,
          .with_number = with_number,
          .of_number = of_number,
          .samples = two_apart};
}

}  // namespace

const Op kAdd{.name = "add",
              .inputs = "input other",
              .text = "The sum of two tensors that broadcast.",
              .shape = numeric_binary,
              .gradient = [](const Backward& b) -> Tensors {
                Tensors out(2);
                if (b.needs(0)) out[0] = sum_to(b.grads[0], b.shape(0));
                if (b.needs(1)) out[1] = sum_to(b.grads[0], b.shape(1));
                return out;
              },
              .widens_bool = true,
              .promotes = Promotion::common,
              .with_number = add,
              .of_number = [](Scalar a, const Tensor& b) { return add(b, a); },
              .samples = two_any};

const Op kSub{
    .name = "sub",
    .inputs = "input other",
    .text = "The difference of two tensors that broadcast.",
    .shape = sub_spec,
    .gradient = [](const Backward& b) -> Tensors {
      Tensors out(2);
      if (b.needs(0)) out[0] = sum_to(b.grads[0], b.shape(0));
      if (b.needs(1)) out[1] = neg(sum_to(b.grads[0], b.shape(1)));
      return out;
    },
    .promotes = Promotion::common,
    .function = [](std::span<const Tensor> in, const Attrs&) -> Tensors { return {sub(in[0], in[1])}; },
    .with_number = sub,
    .of_number = sub,
    .samples = two_any};

const Op kMul{.name = "mul",
              .inputs = "input other",
              .text = "The product of the elements of two tensors that broadcast.",
              .shape = numeric_binary,
              .saves_inputs = 0b11,
              .saves_for = {0b10, 0b01},
              .gradient = [](const Backward& b) -> Tensors {
                Tensors out(2);
                if (b.needs(0)) out[0] = sum_of_products(b.grads[0], b.in[1], b.shape(0));
                if (b.needs(1)) out[1] = sum_of_products(b.grads[0], b.in[0], b.shape(1));
                return out;
              },
              .widens_bool = true,
              .promotes = Promotion::common,
              .with_number = mul,
              .of_number = [](Scalar a, const Tensor& b) { return mul(b, a); },
              .samples = two_any};

const Op kDiv{.name = "div",
              .inputs = "input other",
              .text = "The quotient of the elements of two tensors that broadcast.",
              .internal = true,  // the function has rounding_mode
              .shape = floating_binary,
              .saves_inputs = 0b11,
              .saves_for = {0b10, kAll},
              .gradient = [](const Backward& b) -> Tensors {
                const Tensor &g = b.grads[0], &divisor = b.in[1];
                Tensors out(2);
                if (b.needs(0)) out[0] = sum_to(div(g, divisor), b.shape(0));
                if (b.needs(1))  // in this order: it decides about infinities and NaN
                  out[1] = neg(sum_to(mul(g, div(div(b.in[0], divisor), divisor)), b.shape(1)));
                return out;
              },
              .promotes = Promotion::floating,
              .with_number = div,
              .of_number = div,
              .samples = two_far_from_zero};

// At exponent 0 the power is constant; at base 0 and exponent >= 0 the logarithm is taken as 0.
const Op kPow{.name = "pow",
              .inputs = "input exponent",
              .text = "The elements of one tensor to the power of those of another.",
              .shape = pow_spec,
              .saves_inputs = 0b11,
              .gradient = [](const Backward& b) -> Tensors {
                const Tensor &x = b.in[0], &e = b.in[1], &g = b.grads[0];
                const Tensor zero = tensor(0, g.options());
                Tensors out(2);
                if (b.needs(0))
                  out[0] = sum_to(where(eq(e, zero), zero, mul(mul(g, e), pow(x, add(e, -1.0)))), b.shape(0));
                if (b.needs(1)) {
                  const Tensor safe = where(logical_and(eq(x, zero), ge(e, zero)), 1.0, x);
                  out[1] = sum_to(mul(mul(g, pow(x, e)), log(safe)), b.shape(1));
                }
                return out;
              },
              .promotes = Promotion::common,
              .with_number = pow,
              .of_number = pow,
              .samples = two_positive};

const Op kMaximum = extremum<true>("maximum", "The larger one of each two elements.");
const Op kMinimum = extremum<false>("minimum", "The smaller one of each two elements.");

const Op kAtan2{
    .name = "atan2",
    .inputs = "input other",
    .text = "The angle of each point (other, input), in (-pi, pi].",
    .shape = floating_binary,
    .saves_inputs = 0b11,
    .gradient = [](const Backward& b) -> Tensors {
      const Tensor &y = b.in[0], &x = b.in[1], &g = b.grads[0];
      Tensors out(2);
      if (b.needs(0)) out[0] = sum_to(angle_share(g, x, y, x), b.shape(0));
      if (b.needs(1)) out[1] = neg(sum_to(angle_share(g, y, y, x), b.shape(1)));
      return out;
    },
    .promotes = Promotion::floating,
    .function = [](std::span<const Tensor> in, const Attrs&) -> Tensors { return {atan2(in[0], in[1])}; },
    .samples = two_far_from_zero};

// As in PyTorch, the result requires a gradient, and there is none.
const Op kFloorDivide{.name = "floor_divide",
                      .inputs = "input other",
                      .text = "The quotient, rounded down.",
                      .shape = quotient_spec,
                      .gradient = [](const Backward&) -> Tensors {
                        throw_invalid("[floor_divide] has no gradient; detach() its inputs or its result");
                      },
                      .promotes = Promotion::common,
                      .with_number = floor_divide,
                      .of_number = floor_divide,
                      .samples = []() -> std::vector<Sample> {
                        const Tensor by = tensor({2, -3, -2, 4});
                        return {{{tensor({5, -4, 7, -9}), by}}, {{tensor({{5}, {-4}}), by}}};
                      }};

const Op kRemainder = rest<floor_quotient>(
    "remainder", "The rest of the quotient that is rounded down, with the sign of other.", remainder,
    remainder);
const Op kFmod =
    rest<cut_quotient>("fmod", "The rest of the quotient that is cut off, with the sign of input.", fmod);

const Op kAddScalar{.name = "add_scalar",
                    .text = "The sum of a tensor and a number.",
                    .internal = true,
                    .attrs = {{"value", Scalar(0)}},
                    .shape = same_spec,
                    .gradient = [](const Backward& b) -> Tensors { return {b.grads[0]}; },
                    .widens_bool = true,
                    .promotes = Promotion::common,
                    .samples = []() -> std::vector<Sample> {
                      return {{{sample({3, 4})}, {{"value", 1.5}}}};
                    }};

const Op kMulScalar{
    .name = "mul_scalar",
    .text = "The product of a tensor and a number.",
    .internal = true,
    .attrs = {{"value", Scalar(1)}},
    .shape = same_spec,
    .gradient = [](const Backward& b) -> Tensors { return {mul(b.grads[0], b.attrs.scalar("value"))}; },
    .widens_bool = true,
    .promotes = Promotion::common,
    .samples = []() -> std::vector<Sample> {
      return {{{sample({3, 4})}, {{"value", -1.5}}}};
    }};

const Op kDivScalar{
    .name = "div_scalar",
    .text = "The quotient of a tensor and a number.",
    .internal = true,
    .attrs = {{"value", Scalar(1)}},
    .shape = floating_unary,
    .gradient = [](const Backward& b) -> Tensors { return {div(b.grads[0], b.attrs.scalar("value"))}; },
    .promotes = Promotion::floating,
    .samples = []() -> std::vector<Sample> {
      return {{{sample({3, 4})}, {{"value", -1.5}}}};
    }};

const Op kPowScalar{.name = "pow_scalar",
                    .text = "A tensor to the power of a number.",
                    .internal = true,
                    .attrs = {{"exponent", Scalar(1)}},
                    .shape = pow_scalar_spec,
                    .saves_inputs = 1,
                    .gradient = [](const Backward& b) -> Tensors {
                      const double e = b.attrs.scalar("exponent").to<double>();
                      if (e == 0) return {zeros(b.shape(0), {b.in_specs[0].dtype, b.device()})};
                      return {mul(b.grads[0], mul(e == 1 ? pow(b.in[0], 0.0) : pow(b.in[0], e - 1), e))};
                    },
                    .widens_bool = true,
                    .promotes = Promotion::common,
                    .samples = []() -> std::vector<Sample> {
                      return {{{sample({3, 4}, 0.5, 2)}, {{"exponent", -1.5}}},
                              {{sample({3, 4})}, {{"exponent", 2.0}}},
                              {{sample({4})}, {{"exponent", 1.0}}},
                              {{sample({2, 2})}, {{"exponent", 3.0}}}};
                    }};

Tensor add(const Tensor& a, const Tensor& b) { return apply1(kAdd, {a, b}); }
Tensor sub(const Tensor& a, const Tensor& b) {
  refuse_bool("sub", a.defined() && b.defined() && (a.dtype() == boolean || b.dtype() == boolean));
  return apply1(kSub, {a, b});
}
Tensor mul(const Tensor& a, const Tensor& b) { return apply1(kMul, {a, b}); }
Tensor div(const Tensor& a, const Tensor& b) { return apply1(kDiv, {a, b}); }
Tensor pow(const Tensor& a, const Tensor& b) { return apply1(kPow, {a, b}); }
Tensor maximum(const Tensor& a, const Tensor& b) { return apply1(kMaximum, {a, b}); }
Tensor minimum(const Tensor& a, const Tensor& b) { return apply1(kMinimum, {a, b}); }
// PyTorch's gradient squares the integers first, which wrap, and does not negate bools.
Tensor atan2(const Tensor& y, const Tensor& x) {
  const auto small = [](const Tensor& t) { return t.dtype() == uint8 || t.dtype() == boolean; };
  if (y.defined() && x.defined() && grad_enabled() && (y.requires_grad() || x.requires_grad()) &&
      (small(y) || small(x)))
    throw_invalid(fmt::format("[atan2] {} and {} have no gradient together; use .to() on one of them",
                              y.summary(), x.summary()));
  return apply1(kAtan2, {y, x});
}
Tensor floor_divide(const Tensor& a, const Tensor& b) { return apply1(kFloorDivide, {a, b}); }
Tensor remainder(const Tensor& a, const Tensor& b) { return apply1(kRemainder, {a, b}); }
Tensor fmod(const Tensor& a, const Tensor& b) { return apply1(kFmod, {a, b}); }

Tensor add(const Tensor& a, Scalar value) { return apply1(kAddScalar, {a}, {{"value", value}}); }
Tensor sub(const Tensor& a, Scalar value) {
  refuse_bool("sub", value.is_boolean() || (a.defined() && a.dtype() == boolean));
  return add(a, -value);
}
Tensor sub(Scalar value, const Tensor& a) {
  refuse_bool("sub", value.is_boolean() || (a.defined() && a.dtype() == boolean));
  return add(neg(a.defined() ? to(a, result_type(a, value)) : a), value);
}
Tensor mul(const Tensor& a, Scalar value) { return apply1(kMulScalar, {a}, {{"value", value}}); }
Tensor div(const Tensor& a, Scalar value) { return apply1(kDivScalar, {a}, {{"value", value}}); }
Tensor div(Scalar value, const Tensor& a) {
  if (!a.defined()) return apply1(kDiv, {a, a});
  const DType t = floating_type(result_type(a, value));
  return rounded_once(t, [&](DType wide) {
    return apply1(kDiv, {wrapped(value, wide, a.device()), to(to(a, t), wide)});
  });
}
// In float16 the powers 0.5 and -0.5, to which derivatives lead, are no roots: they differ at -inf and -0.
Tensor pow(const Tensor& a, Scalar exponent) {
  if (a.defined() && a.dtype() == float16 && std::fabs(std::fmod(exponent.to<double>(), 1)) == 0.5)
    return pow(a, wrapped(exponent, float16, a.device()));
  return apply1(kPowScalar, {a}, {{"exponent", exponent}});
}
Tensor pow(Scalar base, const Tensor& exponent) { return with_number(kPow, base, exponent); }
Tensor floor_divide(const Tensor& a, Scalar value) { return with_number(kFloorDivide, a, value); }
Tensor floor_divide(Scalar value, const Tensor& a) { return with_number(kFloorDivide, value, a); }
Tensor remainder(const Tensor& a, Scalar value) { return with_number(kRemainder, a, value); }
Tensor remainder(Scalar value, const Tensor& a) { return with_number(kRemainder, value, a); }
Tensor fmod(const Tensor& a, Scalar value) { return with_number(kFmod, a, value); }

}  // namespace troupe::ops
