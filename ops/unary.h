// Elementwise functions of one tensor. Results are contiguous, of the input's shape and dtype.
#pragma once
#include <optional>

#include "ops/dispatch/op.h"

namespace troupe::ops {

/// Any dtype but bool, of which square makes int64 and sign itself. Integers wrap around.
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor square(const Tensor& x);
/// -1, 0 or 1; NaN for NaN. Its gradient is zero.
Tensor sign(const Tensor& x);
/// Whole numbers, with a gradient of zero; round takes the even one of two that are as near. Integers as they
/// are; not for bool.
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);
/// To so many decimals; below 0: to tens, hundreds, ... Floating ones alone.
Tensor round(const Tensor& x, int64_t decimals);
Tensor trunc(const Tensor& x);

// Of integers and bools float32.
Tensor exp(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor erf(const Tensor& x);
/// Limits the elements to [min, max] (to max, if min is above it); `invalid` without either. The gradient
/// passes where nothing was cut. Any dtype but bool; a floating bound makes integers float32.
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = {});
/// Limits by tensors that broadcast, either of which may be undefined; elements that equal a bound share the
/// gradient with it, as in maximum().
Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max = {});
/// Other numbers in the place of NaN and infinities: of these the largest that the dtype has, where nothing
/// is said. No gradient flows there.
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});

extern const Op kNeg, kAbs, kSquare, kSign, kFloor, kCeil, kRound, kTrunc, kExp, kExpm1, kLog, kLog1p, kLog2,
    kSqrt, kRsqrt, kReciprocal, kSin, kCos, kErf, kClamp;

}  // namespace troupe::ops
