// Elements that are bounded, replaced or rounded: clamp with tensors, nan_to_num, quotients by rounding mode;
// and logaddexp.
#include <fmt/format.h>

#include <limits>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/promote.h"
#include "ops/gradient_rules.h"
#include "ops/logic.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

double largest_of(DType t) {
  if (t == float16) return 65504;
  if (t == bfloat16) return 0x1.fep127;
  return t == float32 ? double{std::numeric_limits<float>::max()} : std::numeric_limits<double>::max();
}

// Gives `rounded` with the history of a and b: a gradient of zeros.
Tensor flat(const Tensor& rounded, const Tensor& a, const Tensor& b) {
  if (!grad_enabled() || !is_floating(rounded.dtype()) || !(a.requires_grad() || b.requires_grad()))
    return rounded;
  const Tensor never = zeros({}, {boolean, rounded.device()});
  return where(never, to(add(a, b), rounded.dtype()), rounded);
}

Tensor rounded_quotient(const Tensor& a, const Tensor& b, const std::string& mode) {
  const DType t = result_type(a, b);
  if (t == boolean) throw_invalid("[div] rounds no quotients of two bool tensors; use .to(int64)");
  const Tensor x = to(a.detach(), t), y = to(b.detach(), t);
  if (mode == "floor") return floor_divide(x, y);
  if (is_floating(t)) return trunc(div(x, y));  // of halves of the rounded quotient, as in PyTorch
  return floor_divide(sub(x, fmod(x, y)), y);   // without a rest there is nothing to round
}

}  // namespace

const Op kLogaddexp{
    .name = "logaddexp",
    .inputs = "input other",
    .text = "log(exp(input) + exp(other)) of each two elements, without overflow.",
    .compose = [](const Call& c) -> Tensors {
      const Tensor &a = c.in[0], &b = c.in[1];
      for (const Tensor& t : c.in) require_floating(c, t);
      const Tensor sum = add(maximum(a, b), log1p(exp(neg(abs(sub(a, b))))));
      return {where(logical_and(eq(a, b), isinf(a)), a, sum)};  // their difference is NaN
    },
    .saves_inputs = 0b11,
    .gradient = [](const Backward& b) -> Tensors {
      const Tensor &x = b.in[0], &y = b.in[1], &g = b.grads[0];
      const auto share = [&](const Tensor& of, const Tensor& beside) {
        return sum_to(div(g, add(exp(sub(beside, of)), 1.0)), of.shape());
      };
      Tensors out(2);
      if (b.needs(0)) out[0] = share(x, y);
      if (b.needs(1)) out[1] = share(y, x);
      return out;
    },
    .promotes = Promotion::common,
    .samples = []() -> std::vector<Sample> {
      return {{{sample({3, 4}), sample({4}, -2, 2, 1)}}, {{sample({}), sample({2, 0}, -2, 2, 1)}}};
    }};

Tensor logaddexp(const Tensor& a, const Tensor& b) { return apply1(kLogaddexp, {a, b}); }

Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max) {
  if (!x.defined()) throw_invalid("[clamp] the input is an undefined tensor");
  if (!min.defined() && !max.defined()) throw_invalid("[clamp] needs min, max or both");
  ResultType type;
  for (const Tensor* t : {&x, &min, &max})
    if (t->defined()) type.add(*t);
  const DType t = type.get();
  if (t == boolean) throw_invalid("[clamp] is not for bool, got " + x.summary() + "; use .to(int64)");
  const Tensor from = to(x, t), low = min.defined() ? to(min, t) : min,
               high = max.defined() ? to(max, t) : max;
  Tensor y = low.defined() ? maximum(from, low) : from;
  if (high.defined()) y = minimum(y, high);
  if (!grad_enabled() || !y.requires_grad()) return y;
  // PyTorch's gradient is the input's alone where the bounds have met it, or one of the three is NaN.
  if (low.defined() && high.defined())
    y = where(logical_and(eq(low, high), eq(from, low)), expand(from, to_list(y.shape())), y);
  return where(isnan(y), add(from, std::numeric_limits<double>::quiet_NaN()), y);
}

Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> posinf, std::optional<double> neginf) {
  if (!x.defined()) throw_invalid("[nan_to_num] got an undefined tensor");
  if (!is_floating(x.dtype())) return clone(x);
  const double most = largest_of(x.dtype());
  const auto number = [&](double value) { return wrapped(value, x.dtype(), x.device()); };
  const Tensor infinite = isinf(x), below = lt(x.detach(), 0);
  Tensor y = where(isnan(x), number(nan), x);
  y = where(logical_and(infinite, below), number(neginf.value_or(-most)), y);
  return where(logical_and(infinite, logical_not(below)), number(posinf.value_or(most)), y);
}

Tensor div(const Tensor& a, const Tensor& b, const std::string& rounding_mode) {
  if (rounding_mode != "trunc" && rounding_mode != "floor")
    throw_invalid(fmt::format(
        "[div] rounding_mode must be \"trunc\" or \"floor\", got \"{}\"; leave it out for the quotient",
        rounding_mode));
  if (!a.defined() || !b.defined()) return div(a, b);  // says which one
  return flat(rounded_quotient(a, b, rounding_mode), a, b);
}
Tensor div(const Tensor& a, Scalar value, const std::string& rounding_mode) {
  if (!a.defined()) return div(a, value);
  const DType t = result_type(a, value);
  return div(to(a, t), wrapped(value, t, a.device()), rounding_mode);
}

}  // namespace troupe::ops
