// Elementwise functions of one tensor. Results are contiguous, of the input's shape and dtype.
#pragma once
#include "ops/op.h"

namespace troupe::ops {

/// Any dtype but bool; so abs, square and sign.
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor square(const Tensor& x);
/// -1, 0 or 1; NaN for NaN. Its gradient is zero.
Tensor sign(const Tensor& x);

// of any floating dtype
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor erf(const Tensor& x);
/// Limits the elements to [min, max]; the gradient passes where nothing was cut.
Tensor clamp(const Tensor& x, double min, double max);

extern const Op kNeg, kAbs, kSquare, kSign, kExp, kLog, kLog1p, kSqrt, kRsqrt, kReciprocal, kSin, kCos, kErf,
    kClamp;

}  // namespace troupe::ops
