// Arithmetic of two tensors, or of a tensor and a number, with broadcasting; comparisons; where.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

// Shapes broadcast. Operands of several dtypes meet in result_type() (ops/dispatch/promote.h), as in PyTorch;
// each gets its gradient in its own. Integers wrap around. Of bools + is "or" and * is "and".

Tensor add(const Tensor& a, const Tensor& b);
/// Not for bool: `invalid`.
Tensor sub(const Tensor& a, const Tensor& b);
/// a + alpha b, a - alpha b. `invalid` for a floating alpha of integers.
Tensor add(const Tensor& a, const Tensor& b, Scalar alpha);
Tensor sub(const Tensor& a, const Tensor& b, Scalar alpha);
Tensor mul(const Tensor& a, const Tensor& b);
/// Of integers and bools float32; so atan2.
Tensor div(const Tensor& a, const Tensor& b);
/// The rounding_mode is "trunc" or "floor": rounded towards 0 or down; of integers an integer. Its gradient is zero.
Tensor div(const Tensor& a, const Tensor& b, const std::string& rounding_mode);
Tensor div(const Tensor& a, Scalar value, const std::string& rounding_mode);
/// Gives log(exp(a) + exp(b)) without overflow, of floating tensors.
Tensor logaddexp(const Tensor& a, const Tensor& b);
/// An integer to a negative power is 0, but for 1 and -1. Not of two bools.
Tensor pow(const Tensor& a, const Tensor& b);
/// NaN if one of the two is. Equal elements share the gradient.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
/// The angle of the point (x, y), in (-pi, pi].
Tensor atan2(const Tensor& y, const Tensor& x);
/// The quotient, rounded down. Integers by 0 are `invalid`; so remainder and fmod, and none is for two bools.
/// A backward pass through it is refused.
Tensor floor_divide(const Tensor& a, const Tensor& b);
/// a - b floor_divide(a, b): of the sign of b. Of fmod: of the sign of a.
Tensor remainder(const Tensor& a, const Tensor& b);
Tensor fmod(const Tensor& a, const Tensor& b);

/// a + value b c, and a + value b / c, in the common dtype of all three: halves are rounded once. addcmul is
/// not for bool, and addcdiv does not divide integers by integers: `invalid`.
Tensor addcmul(const Tensor& a, const Tensor& b, const Tensor& c, Scalar value = 1);
Tensor addcdiv(const Tensor& a, const Tensor& b, const Tensor& c, Scalar value = 1);
/// a + weight (end - a), of one floating dtype; a weight of 1 gives `end` exactly. A 0-d weight has any
/// dtype.
Tensor lerp(const Tensor& a, const Tensor& end, Scalar weight);
Tensor lerp(const Tensor& a, const Tensor& end, const Tensor& weight);

Tensor add(const Tensor& a, Scalar value);
Tensor sub(const Tensor& a, Scalar value);
Tensor sub(Scalar value, const Tensor& a);
Tensor mul(const Tensor& a, Scalar value);
Tensor div(const Tensor& a, Scalar value);
Tensor div(Scalar value, const Tensor& a);
/// A negative integer exponent of integers is `invalid`.
Tensor pow(const Tensor& a, Scalar exponent);
Tensor pow(Scalar base, const Tensor& exponent);
Tensor floor_divide(const Tensor& a, Scalar value);
Tensor floor_divide(Scalar value, const Tensor& a);
Tensor remainder(const Tensor& a, Scalar value);
Tensor remainder(Scalar value, const Tensor& a);
Tensor fmod(const Tensor& a, Scalar value);

/// Boolean results, for every dtype; compared in the common one.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
/// `invalid` for an integer that the integers of `a` cannot hold.
Tensor eq(const Tensor& a, Scalar value);
Tensor ne(const Tensor& a, Scalar value);
Tensor lt(const Tensor& a, Scalar value);
Tensor le(const Tensor& a, Scalar value);
Tensor gt(const Tensor& a, Scalar value);
Tensor ge(const Tensor& a, Scalar value);
/// a where `condition` (bool) is true, else b; all three broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
/// `invalid` for a number that the common dtype cannot hold (Scalar::fits).
Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
Tensor where(const Tensor& condition, Scalar a, const Tensor& b);
Tensor where(const Tensor& condition, Scalar a, Scalar b);

extern const Op kAdd, kSub, kMul, kDiv, kPow, kMaximum, kMinimum, kAtan2, kFloorDivide, kRemainder, kFmod,
    kLogaddexp, kAddScalar, kMulScalar, kDivScalar, kPowScalar, kEq, kNe, kLt, kLe, kGt, kGe, kWhere;

}  // namespace troupe::ops
