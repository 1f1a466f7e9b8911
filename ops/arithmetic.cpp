#include "ops/arithmetic.h"

#include <cmath>

#include "ops/check.h"
#include "ops/cpu/kernels.h"
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

Tensor zero_like(const Tensor& x) { return Tensor::scalar(0, x.dtype()); }

// Shared between equal elements.
Tensors extremum_gradient(const Backward& b, bool first_wins_if_larger) {
  const Tensor &x = b.in[0], &y = b.in[1], &g = b.grads[0];
  const Tensor half = mul(g, 0.5), zero = zero_like(g), tie = eq(x, y);
  const Tensor first = first_wins_if_larger ? gt(x, y) : lt(x, y),
               second = first_wins_if_larger ? lt(x, y) : gt(x, y);
  Tensors out(2);
  if (b.needs(0)) out[0] = sum_to(where(tie, half, where(first, g, zero)), b.shape(0));
  if (b.needs(1)) out[1] = sum_to(where(tie, half, where(second, g, zero)), b.shape(1));
  return out;
}

// A number that the dtype of `a` does not have must not be rounded to one that it has.
Tensor with_number(const Op& op, const Tensor& a, double value) {
  if (!a.defined() || is_floating(a.dtype()))
    return apply1(op, {a, a.defined() ? Tensor::scalar(value, a.dtype()) : Tensor()});
  if (a.dtype() == int64 && value == std::floor(value) && std::fabs(value) < 0x1p63)
    return apply1(op, {a, Tensor::scalar(value, int64)});
  return apply1(op, {to(a, float64), Tensor::scalar(value, float64)});
}

Specs where_spec(const Call& c) {
  if (c.in[0].dtype() != boolean) reject(c, "the condition must be bool, got " + c.in[0].str());
  require_same_dtype(c, 1);
  return {{broadcast(c.in[0].shape(), broadcast(c.in[1].shape(), c.in[2].shape(), c.name()), c.name()),
           c.in[1].dtype()}};
}

}  // namespace

const Op kAdd{.name = "add",
              .min_inputs = 2,
              .max_inputs = 2,
              .shape = numeric_binary,
              .cpu = cpu::add,
              .gradient = [](const Backward& b) -> Tensors {
                Tensors out(2);
                if (b.needs(0)) out[0] = sum_to(b.grads[0], b.shape(0));
                if (b.needs(1)) out[1] = sum_to(b.grads[0], b.shape(1));
                return out;
              },
              .samples = two_any};

const Op kSub{.name = "sub",
              .min_inputs = 2,
              .max_inputs = 2,
              .shape = numeric_binary,
              .cpu = cpu::sub,
              .gradient = [](const Backward& b) -> Tensors {
                Tensors out(2);
                if (b.needs(0)) out[0] = sum_to(b.grads[0], b.shape(0));
                if (b.needs(1)) out[1] = neg(sum_to(b.grads[0], b.shape(1)));
                return out;
              },
              .samples = two_any};

const Op kMul{.name = "mul",
              .min_inputs = 2,
              .max_inputs = 2,
              .shape = numeric_binary,
              .cpu = cpu::mul,
              .saves_inputs = 0b11,
              .gradient = [](const Backward& b) -> Tensors {
                Tensors out(2);
                if (b.needs(0)) out[0] = sum_to(mul(b.grads[0], b.in[1]), b.shape(0));
                if (b.needs(1)) out[1] = sum_to(mul(b.grads[0], b.in[0]), b.shape(1));
                return out;
              },
              .samples = two_any};

const Op kDiv{.name = "div",
              .min_inputs = 2,
              .max_inputs = 2,
              .shape = floating_binary,
              .cpu = cpu::div,
              .saves_inputs = 0b11,
              .gradient = [](const Backward& b) -> Tensors {
                const Tensor g = div(b.grads[0], b.in[1]);
                Tensors out(2);
                if (b.needs(0)) out[0] = sum_to(g, b.shape(0));
                if (b.needs(1)) out[1] = neg(sum_to(mul(g, div(b.in[0], b.in[1])), b.shape(1)));
                return out;
              },
              .samples = two_far_from_zero};

// At exponent 0 the power is constant; at base 0 and exponent >= 0 the logarithm is taken as 0.
const Op kPow{.name = "pow",
              .min_inputs = 2,
              .max_inputs = 2,
              .shape = floating_binary,
              .cpu = cpu::pow,
              .saves_inputs = 0b11,
              .gradient = [](const Backward& b) -> Tensors {
                const Tensor &x = b.in[0], &e = b.in[1], &g = b.grads[0];
                const Tensor zero = zero_like(g);
                Tensors out(2);
                if (b.needs(0))
                  out[0] = sum_to(where(eq(e, zero), zero, mul(mul(g, e), pow(x, add(e, -1.0)))), b.shape(0));
                if (b.needs(1)) {
                  const Tensor safe = where(eq(x, zero), Tensor::scalar(1, x.dtype()), x);
                  out[1] = sum_to(mul(mul(g, pow(x, e)), log(safe)), b.shape(1));
                }
                return out;
              },
              .samples = two_positive};

const Op kMaximum{.name = "maximum",
                  .min_inputs = 2,
                  .max_inputs = 2,
                  .shape = numeric_binary,
                  .cpu = cpu::maximum,
                  .saves_inputs = 0b11,
                  .gradient = [](const Backward& b) { return extremum_gradient(b, true); },
                  .samples = two_any};

const Op kMinimum{.name = "minimum",
                  .min_inputs = 2,
                  .max_inputs = 2,
                  .shape = numeric_binary,
                  .cpu = cpu::minimum,
                  .saves_inputs = 0b11,
                  .gradient = [](const Backward& b) { return extremum_gradient(b, false); },
                  .samples = two_any};

const Op kAddScalar{.name = "add_scalar",
                    .attrs = {{"value", 0.0}},
                    .shape = numeric_unary,
                    .cpu = cpu::add_scalar,
                    .gradient = [](const Backward& b) -> Tensors { return {b.grads[0]}; },
                    .samples = []() -> std::vector<Sample> {
                      return {{{sample({3, 4})}, {{"value", 1.5}}}};
                    }};

const Op kMulScalar{
    .name = "mul_scalar",
    .attrs = {{"value", 1.0}},
    .shape = numeric_unary,
    .cpu = cpu::mul_scalar,
    .gradient = [](const Backward& b) -> Tensors { return {mul(b.grads[0], b.attrs.number("value"))}; },
    .samples = []() -> std::vector<Sample> {
      return {{{sample({3, 4})}, {{"value", -1.5}}}};
    }};

const Op kPowScalar{.name = "pow_scalar",
                    .attrs = {{"exponent", 1.0}},
                    .shape = floating_unary,
                    .cpu = cpu::pow_scalar,
                    .saves_inputs = 1,
                    .gradient = [](const Backward& b) -> Tensors {
                      const double e = b.attrs.number("exponent");
                      if (e == 0) return {mul(b.grads[0], 0.0)};
                      return {mul(b.grads[0], mul(e == 1 ? pow(b.in[0], 0.0) : pow(b.in[0], e - 1), e))};
                    },
                    .samples = []() -> std::vector<Sample> {
                      return {{{sample({3, 4}, 0.5, 2)}, {{"exponent", -1.5}}},
                              {{sample({3, 4})}, {{"exponent", 2.0}}},
                              {{sample({4})}, {{"exponent", 1.0}}},
                              {{sample({2, 2})}, {{"exponent", 3.0}}}};
                    }};

const Op kEq{.name = "eq",
             .min_inputs = 2,
             .max_inputs = 2,
             .shape = comparison,
             .cpu = cpu::eq,
             .takes_half = true,
             .samples = two_any};
const Op kNe{.name = "ne",
             .min_inputs = 2,
             .max_inputs = 2,
             .shape = comparison,
             .cpu = cpu::ne,
             .takes_half = true,
             .samples = two_any};
const Op kLt{.name = "lt",
             .min_inputs = 2,
             .max_inputs = 2,
             .shape = comparison,
             .cpu = cpu::lt,
             .takes_half = true,
             .samples = two_any};
const Op kLe{.name = "le",
             .min_inputs = 2,
             .max_inputs = 2,
             .shape = comparison,
             .cpu = cpu::le,
             .takes_half = true,
             .samples = two_any};
const Op kGt{.name = "gt",
             .min_inputs = 2,
             .max_inputs = 2,
             .shape = comparison,
             .cpu = cpu::gt,
             .takes_half = true,
             .samples = two_any};
const Op kGe{.name = "ge",
             .min_inputs = 2,
             .max_inputs = 2,
             .shape = comparison,
             .cpu = cpu::ge,
             .takes_half = true,
             .samples = two_any};

const Op kWhere{.name = "where",
                .min_inputs = 3,
                .max_inputs = 3,
                .shape = where_spec,
                .cpu = cpu::where,
                .saves_inputs = 1,
                .gradient = [](const Backward& b) -> Tensors {
                  const Tensor zero = zero_like(b.grads[0]);
                  Tensors out(3);
                  if (b.needs(1)) out[1] = sum_to(where(b.in[0], b.grads[0], zero), b.shape(1));
                  if (b.needs(2)) out[2] = sum_to(where(b.in[0], zero, b.grads[0]), b.shape(2));
                  return out;
                },
                .takes_half = true,
                .samples = []() -> std::vector<Sample> {
                  const Tensor condition = gt(sample({3, 4}, -1, 1, 2), Tensor::scalar(0, float64));
                  return {{{condition, sample({3, 4}), sample({4}, -2, 2, 1)}},
                          {{condition, sample({3, 1}), sample({}, -2, 2, 1)}}};
                }};

Tensor add(const Tensor& a, const Tensor& b) { return apply1(kAdd, {a, b}); }
Tensor sub(const Tensor& a, const Tensor& b) { return apply1(kSub, {a, b}); }
Tensor mul(const Tensor& a, const Tensor& b) { return apply1(kMul, {a, b}); }
Tensor div(const Tensor& a, const Tensor& b) { return apply1(kDiv, {a, b}); }
Tensor pow(const Tensor& a, const Tensor& b) { return apply1(kPow, {a, b}); }
Tensor maximum(const Tensor& a, const Tensor& b) { return apply1(kMaximum, {a, b}); }
Tensor minimum(const Tensor& a, const Tensor& b) { return apply1(kMinimum, {a, b}); }
Tensor add(const Tensor& a, double value) { return apply1(kAddScalar, {a}, {{"value", value}}); }
Tensor mul(const Tensor& a, double value) { return apply1(kMulScalar, {a}, {{"value", value}}); }
Tensor pow(const Tensor& a, double exponent) { return apply1(kPowScalar, {a}, {{"exponent", exponent}}); }
Tensor eq(const Tensor& a, const Tensor& b) { return apply1(kEq, {a, b}); }
Tensor ne(const Tensor& a, const Tensor& b) { return apply1(kNe, {a, b}); }
Tensor lt(const Tensor& a, const Tensor& b) { return apply1(kLt, {a, b}); }
Tensor le(const Tensor& a, const Tensor& b) { return apply1(kLe, {a, b}); }
Tensor gt(const Tensor& a, const Tensor& b) { return apply1(kGt, {a, b}); }
Tensor ge(const Tensor& a, const Tensor& b) { return apply1(kGe, {a, b}); }
Tensor eq(const Tensor& a, double value) { return with_number(kEq, a, value); }
Tensor ne(const Tensor& a, double value) { return with_number(kNe, a, value); }
Tensor lt(const Tensor& a, double value) { return with_number(kLt, a, value); }
Tensor le(const Tensor& a, double value) { return with_number(kLe, a, value); }
Tensor gt(const Tensor& a, double value) { return with_number(kGt, a, value); }
Tensor ge(const Tensor& a, double value) { return with_number(kGe, a, value); }
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return apply1(kWhere, {condition, a, b});
}

}  // namespace troupe::ops
