// Arithmetic of two tensors, or of a tensor and a number, with broadcasting; comparisons; where.
#pragma once
#include "ops/op.h"

namespace troupe::ops {

/// Inputs have one dtype (not bool) and shapes that broadcast; so does the result.
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
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
/// A floating tensor is compared with the number in its own dtype; int64 and bool with its exact value.
Tensor eq(const Tensor& a, double value);
Tensor ne(const Tensor& a, double value);
Tensor lt(const Tensor& a, double value);
Tensor le(const Tensor& a, double value);
Tensor gt(const Tensor& a, double value);
Tensor ge(const Tensor& a, double value);
/// a where `condition` (bool) is true, else b; all three broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

extern const Op kAdd, kSub, kMul, kDiv, kPow, kMaximum, kMinimum, kAddScalar, kMulScalar, kPowScalar, kEq,
    kNe, kLt, kLe, kGt, kGe, kWhere;

}  // namespace troupe::ops
