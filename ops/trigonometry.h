// More functions of each element: angles, hyperbolas, powers of 2, logarithms to base 10, and those around
// erf. Results are contiguous and of the input's shape; of integers and bools they are float32.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

Tensor tan(const Tensor& x);
/// Outside [-1, 1] NaN; so acos, atanh and erfinv.
Tensor asin(const Tensor& x);
Tensor acos(const Tensor& x);
Tensor atan(const Tensor& x);
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
Tensor asinh(const Tensor& x);
/// Below 1 NaN.
Tensor acosh(const Tensor& x);
Tensor atanh(const Tensor& x);
/// 2 to the power of x.
Tensor exp2(const Tensor& x);
Tensor log10(const Tensor& x);
/// 1 - erf(x), exact where that is near 0.
Tensor erfc(const Tensor& x);
/// The inverse of erf.
Tensor erfinv(const Tensor& x);

extern const Op kTan, kAsin, kAcos, kAtan, kSinh, kCosh, kAsinh, kAcosh, kAtanh, kExp2, kLog10, kErfc,
    kErfinv;

}  // namespace troupe::ops
