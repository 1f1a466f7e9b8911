// Sums with a factor: add and sub with alpha, addcmul, addcdiv, lerp. All operands are converted first, and
// halves are rounded once, at the end.
#include <fmt/format.h>

#include <cmath>

#include "core/base/error.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/check.h"
#include "ops/dispatch/promote.h"
#include "ops/unary.h"

namespace troupe::ops {
namespace {

using Binary = Tensor(const Tensor&, const Tensor&);

// a + alpha b, or a - alpha b.
Tensor with_alpha(const char* op, Binary* sum, const Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (alpha == Scalar(1) || !a.defined() || !b.defined()) return sum(a, b);
  const DType t = result_type(a, b);
  if (alpha.is_floating() && !is_floating(t))
    throw_invalid(fmt::format("[{}] alpha must be an integer for {} and {}, got {}", op, a.summary(),
                              b.summary(), alpha.str()));
  require_fits(alpha, t, op);
  return rounded_once(
      t, [&](DType wide) { return sum(is_half(t) ? to(a, wide) : a, to(mul(to(b, wide), alpha), wide)); });
}

DType common_type(const char* op, std::initializer_list<const Tensor*> all) {
  ResultType type;
  for (const Tensor* t : all) {
    if (!t->defined()) throw_invalid(fmt::format("[{}] got an undefined tensor", op));
    type.add(*t);
  }
  return type.get();
}

// value b; without a step of its own for 1.
Tensor times(const Tensor& b, const Scalar& value) { return value.to<double>() == 1 ? b : mul(b, value); }

// a + value b c, or a + value b / c.
Tensor with_two(Binary* join, DType t, const Tensor& a, const Tensor& b, const Tensor& c,
                const Scalar& value) {
  return rounded_once(
      t, [&](DType wide) { return add(to(a, wide), join(times(to(b, wide), value), to(c, wide))); });
}

// As PyTorch from the nearer end, so that a weight of 1 gives the other one exactly.
bool near_start(double weight) { return std::fabs(weight) < 0.5; }

void check_lerp(const Tensor& a, const Tensor& end) {
  common_type("lerp", {&a, &end});
  if (!is_floating(a.dtype()))
    throw_invalid("[lerp] needs a floating dtype, got " + a.summary() + "; use .to()");
  if (end.dtype() != a.dtype())
    throw_invalid(fmt::format("[lerp] end must be {} as the input is, got {}; use .to()", name(a.dtype()),
                              end.summary()));
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b, Scalar alpha) { return with_alpha("add", &add, a, b, alpha); }
Tensor sub(const Tensor& a, const Tensor& b, Scalar alpha) { return with_alpha("sub", &sub, a, b, alpha); }

Tensor addcmul(const Tensor& a, const Tensor& b, const Tensor& c, Scalar value) {
  const DType t = common_type("addcmul", {&a, &b, &c});
  if (t == boolean) throw_invalid("[addcmul] is not for bool; use logical_and() and logical_or(), or .to()");
  if (value.is_floating() && !is_floating(t))
    throw_invalid(fmt::format("[addcmul] value must be an integer for integers, got {}", value.str()));
  return with_two(&mul, t, a, b, c, value);
}

Tensor addcdiv(const Tensor& a, const Tensor& b, const Tensor& c, Scalar value) {
  const DType t = common_type("addcdiv", {&a, &b, &c});
  if (!is_floating(b.dtype()) && !is_floating(c.dtype()))
    throw_invalid(fmt::format("[addcdiv] divides no integers, got {} and {}; use .to(float32) on one of them",
                              b.summary(), c.summary()));
  return with_two(&div, t, a, b, c, value);
}

Tensor lerp(const Tensor& a, const Tensor& end, Scalar weight) {
  check_lerp(a, end);
  const double w = weight.to<double>();
  return rounded_once(a.dtype(), [&](DType wide) {
    const Tensor from = to(a, wide), until = to(end, wide), way = sub(until, from);
    return near_start(w) ? add(from, mul(way, w)) : sub(until, mul(way, 1 - w));
  });
}

Tensor lerp(const Tensor& a, const Tensor& end, const Tensor& weight) {
  check_lerp(a, end);
  if (weight.dim() > 0 && weight.dtype() != a.dtype())
    throw_invalid(fmt::format("[lerp] weight must be {} as the input is, got {}; use .to()", name(a.dtype()),
                              weight.summary()));
  return rounded_once(a.dtype(), [&](DType wide) {
    const Tensor from = to(a, wide), until = to(end, wide), w = to(weight, wide), way = sub(until, from);
    return where(lt(abs(w.detach()), 0.5), add(from, mul(way, w)), sub(until, mul(way, sub(1, w))));
  });
}

}  // namespace troupe::ops
