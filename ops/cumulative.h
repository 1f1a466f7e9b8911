// Along one dimension: running products, and differences of neighbours.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// Any dtype (integers and bool give int64).
Tensor cumprod(const Tensor& x, int64_t dim);
Tensor cumprod(const Tensor& x, int64_t dim, DType dtype);  ///< converted first
/// x[i + 1] - x[i], n times over; of bool whether they differ. `invalid` for a 0-d tensor.
Tensor diff(const Tensor& x, int64_t n = 1, int64_t dim = -1);

extern const Op kCumprod;
/// The gradient of cumprod from (gradient, x, result) in one pass. While a graph is created (grad mode) it is
/// made of other operators instead.
extern const Op kCumprodGrad;

}  // namespace troupe::ops
