// Arithmetic of two tensors, or of a tensor and a number, with broadcasting; comparisons; where.
#pragma once
#include "ops/op.h"

namespace troupe::ops {

/// Inputs have one dtype (float32, float64 or int64) and shapes that broadcast; so does the result.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
/// Floating inputs only; so pow.
Tensor div(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& a, const Tensor& b);
/// NaN if one of the two is. Equal elements share the gradient.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
/// The number takes the dtype of the tensor.
Tensor add(const Tensor& a, double value);
Tensor mul(const Tensor& a, double value);
inline Tensor sub(const Tensor& a, double value) { return add(a, -value); }
inline Tensor div(const Tensor& a, double value) { return mul(a, 1 / value); }
Tensor pow(const Tensor& a, double exponent);

/// Boolean results, for every dtype.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
/// a where `condition` (bool) is true, else b; all three broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

extern const Op kAdd, kSub, kMul, kDiv, kPow, kMaximum, kMinimum, kAddScalar, kMulScalar, kPowScalar, kEq,
    kLt, kGt, kWhere;

}  // namespace troupe::ops
