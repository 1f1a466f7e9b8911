#include "ops/unary.h"

#include <limits>
#include <numbers>

#include "core/base/error.h"
#include "core/tensor/convert.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/promote.h"
#include "ops/gradient_rules.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

std::vector<Sample> any() { return {{{sample({3, 4})}}, {{sample({})}}, {{sample({0, 2})}}}; }
std::vector<Sample> positive() { return {{{sample({3, 4}, 0.3, 2)}}, {{sample({}, 0.3, 2)}}}; }

Tensors no_slope(const Backward& b) { return {zeros(b.shape(0), {b.in_specs[0].dtype, b.device()})}; }

constexpr double kInf = std::numeric_limits<double>::infinity();

// As an element of that dtype: an element that equals a bound must be seen to.
Scalar rounded(const Scalar& bound, DType dtype) {
  return visit_dtype(dtype, [&](auto zero) { return Scalar(convert<double>(bound.to<decltype(zero)>())); });
}

constexpr Op rounding(const char* name, const char* text, bool internal = false) {
  return {.name = name,
          .text = text,
          .internal = internal,
          .shape = numeric_unary,
          .gradient = no_slope,
          .samples = any};
}

}  // namespace

const Op kNeg{.name = "neg",
              .text = "The negative of each element.",
              .shape = numeric_unary,
              .gradient = [](const Backward& b) -> Tensors { return {neg(b.grads[0])}; },
              .samples = any};
const Op kAbs{.name = "abs",
              .text = "The absolute value of each element.",
              .shape = numeric_unary,
              .saves_inputs = 1,
              .gradient = [](const Backward& b) -> Tensors { return {mul(b.grads[0], sign(b.in[0]))}; },
              .samples = any};
const Op kSquare{
    .name = "square",
    .text = "The square of each element.",
    .shape = numeric_unary,
    .saves_inputs = 1,
    .gradient =
        rounding_once<[](const Backward& b) -> Tensors { return {mul(mul(b.grads[0], 2.0), b.in[0])}; }>,
    .function = [](std::span<const Tensor> in, const Attrs&) -> Tensors { return {square(in[0])}; },
    .samples = any};
const Op kSign{.name = "sign",
               .text = "-1, 0 or 1 of each element.",
               .shape = same_spec,
               .gradient = no_slope,
               .widens_bool = true,
               .samples = any};
const Op kFloor = rounding("floor", "Each element, rounded down.");
const Op kCeil = rounding("ceil", "Each element, rounded up.");
const Op kRound = rounding("round", "Each element, rounded to the nearest whole number, an even one of two.",
                           true);  // the function takes decimals, too
const Op kTrunc = rounding("trunc", "Each element without its fraction.");
const Op kExp{.name = "exp",
              .text = "e to the power of each element.",
              .shape = floating_unary,
              .saves_outputs = 1,
              .gradient = [](const Backward& b) -> Tensors { return {mul(b.grads[0], b.out[0])}; },
              .promotes = Promotion::floating,
              .samples = any};
const Op kExpm1{
    .name = "expm1",
    .text = "exp(x) - 1 of each element, exact near 0.",
    .shape = floating_unary,
    .saves_outputs = 1,
    .gradient =
        rounding_once<[](const Backward& b) -> Tensors { return {mul(b.grads[0], add(b.out[0], 1))}; }>,
    .promotes = Promotion::floating,
    .samples = any};
const Op kLog2{.name = "log2",
               .text = "The logarithm of each element to base 2.",
               .shape = floating_unary,
               .saves_inputs = 1,
               .gradient = rounding_once<[](const Backward& b) -> Tensors {
                 return {div(b.grads[0], mul(b.in[0], std::numbers::ln2))};
               }>,
               .promotes = Promotion::floating,
               .samples = positive};
const Op kLog{.name = "log",
              .text = "The natural logarithm of each element.",
              .shape = floating_unary,
              .saves_inputs = 1,
              .gradient = [](const Backward& b) -> Tensors { return {div(b.grads[0], b.in[0])}; },
              .promotes = Promotion::floating,
              .samples = positive};
const Op kLog1p{
    .name = "log1p",
    .text = "log(1 + x) of each element, exact near 0.",
    .shape = floating_unary,
    .saves_inputs = 1,
    .gradient =
        rounding_once<[](const Backward& b) -> Tensors { return {div(b.grads[0], add(b.in[0], 1.0))}; }>,
    .promotes = Promotion::floating,
    .samples = positive};
const Op kSqrt{
    .name = "sqrt",
    .text = "The square root of each element.",
    .shape = floating_unary,
    .saves_outputs = 1,
    .gradient =
        rounding_once<[](const Backward& b) -> Tensors { return {div(mul(b.grads[0], 0.5), b.out[0])}; }>,
    .promotes = Promotion::floating,
    .samples = positive};
const Op kRsqrt{.name = "rsqrt",
                .text = "1 / sqrt(x) of each element.",
                .shape = floating_unary,
                .saves_outputs = 1,
                .gradient = rounding_once<[](const Backward& b) -> Tensors {
                  return {mul(mul(b.grads[0], -0.5), pow(b.out[0], 3.0))};
                }>,
                .promotes = Promotion::floating,
                .samples = positive};
const Op kReciprocal{
    .name = "reciprocal",
    .text = "1 / x of each element.",
    .shape = floating_unary,
    .saves_outputs = 1,
    .gradient =
        rounding_once<[](const Backward& b) -> Tensors { return {neg(mul(b.grads[0], square(b.out[0])))}; }>,
    .promotes = Promotion::floating,
    .samples = positive};
const Op kSin{
    .name = "sin",
    .text = "The sine of each element.",
    .shape = floating_unary,
    .saves_inputs = 1,
    .gradient = rounding_once<[](const Backward& b) -> Tensors { return {mul(b.grads[0], cos(b.in[0]))}; }>,
    .promotes = Promotion::floating,
    .samples = any};
const Op kCos{
    .name = "cos",
    .text = "The cosine of each element.",
    .shape = floating_unary,
    .saves_inputs = 1,
    .gradient =
        rounding_once<[](const Backward& b) -> Tensors { return {neg(mul(b.grads[0], sin(b.in[0])))}; }>,
    .promotes = Promotion::floating,
    .samples = any};
const Op kErf{.name = "erf",
              .text = "The error function of each element.",
              .shape = floating_unary,
              .saves_inputs = 1,
              .gradient = rounding_once<[](const Backward& b) -> Tensors {
                return {mul(mul(b.grads[0], 2 * std::numbers::inv_sqrtpi), exp(neg(square(b.in[0]))))};
              }>,
              .promotes = Promotion::floating,
              .samples = any};
const Op kClamp{
    .name = "clamp",
    .text = "Limits the elements to [min, max].",
    .internal = true,
    .attrs = {{"min", Scalar(-kInf)}, {"max", Scalar(kInf)}, {"has_min", true}, {"has_max", true}},
    .shape = numeric_unary,
    .saves_inputs = 1,
    .gradient = [](const Backward& b) -> Tensors {
      const Tensor &x = b.in[0], zero = tensor(0, x.options());
      Tensor g = b.grads[0];  // an infinite x between no bounds keeps its own
      if (b.attrs.flag("has_max")) g = where(lt(x, b.attrs.scalar("max")), g, zero);
      if (b.attrs.flag("has_min")) g = where(gt(x, b.attrs.scalar("min")), g, zero);
      return {g};
    },
    .promotes = Promotion::bounds,
    .samples = []() -> std::vector<Sample> {
      return {{{sample({3, 4})}, {{"min", -0.51}, {"max", 0.73}}}, {{sample({5})}, {{"min", 0.1}}}};
    }};

Tensor neg(const Tensor& x) { return apply1(kNeg, {x}); }
Tensor abs(const Tensor& x) { return apply1(kAbs, {x}); }
Tensor square(const Tensor& x) {
  return apply1(kSquare, {x.defined() && x.dtype() == boolean ? to(x, int64) : x});
}
Tensor sign(const Tensor& x) { return apply1(kSign, {x}); }
Tensor floor(const Tensor& x) { return apply1(kFloor, {x}); }
Tensor ceil(const Tensor& x) { return apply1(kCeil, {x}); }
Tensor round(const Tensor& x) { return apply1(kRound, {x}); }
Tensor round(const Tensor& x, int64_t decimals) {
  if (!x.defined() || decimals == 0) return round(x);
  if (!is_floating(x.dtype())) throw_invalid("[round] decimals are for floating tensors, got " + x.summary());
  const double ten = std::pow(10, static_cast<double>(std::abs(decimals)));
  return rounded_once(x.dtype(), [&](DType t) {
    const Tensor y = to(x, t);
    return decimals > 0 ? div(round(mul(y, ten)), ten) : mul(round(div(y, ten)), ten);
  });
}
Tensor trunc(const Tensor& x) { return apply1(kTrunc, {x}); }
Tensor expm1(const Tensor& x) { return apply1(kExpm1, {x}); }
Tensor log2(const Tensor& x) { return apply1(kLog2, {x}); }
Tensor exp(const Tensor& x) { return apply1(kExp, {x}); }
Tensor log(const Tensor& x) { return apply1(kLog, {x}); }
Tensor log1p(const Tensor& x) { return apply1(kLog1p, {x}); }
Tensor sqrt(const Tensor& x) { return apply1(kSqrt, {x}); }
Tensor rsqrt(const Tensor& x) { return apply1(kRsqrt, {x}); }
Tensor reciprocal(const Tensor& x) { return apply1(kReciprocal, {x}); }
Tensor sin(const Tensor& x) { return apply1(kSin, {x}); }
Tensor cos(const Tensor& x) { return apply1(kCos, {x}); }
Tensor erf(const Tensor& x) { return apply1(kErf, {x}); }
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
  if (!min && !max) throw_invalid("[clamp] needs min, max or both");
  if (x.defined() && is_half(x.dtype()))
    for (auto* bound : {&min, &max})
      if (*bound) *bound = rounded(**bound, x.dtype());
  Attrs bounds{{"has_min", min.has_value()}, {"has_max", max.has_value()}};
  if (min) bounds.add({"min", *min});
  if (max) bounds.add({"max", *max});
  if (!x.defined() || is_floating(x.dtype())) return apply1(kClamp, {x}, std::move(bounds));
  ResultType type;  // an infinite bound counts here: it was given
  type.add(x);
  for (const auto& bound : {min, max})
    if (bound) type.add(*bound);
  return apply1(kClamp, {to(x, type.get())}, std::move(bounds));
}

}  // namespace troupe::ops
