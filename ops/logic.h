// Boolean operators: logic, special values, any and all; masked_fill.
#pragma once
#include "ops/op.h"

namespace troupe::ops {

/// Of bool tensors that broadcast.
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);

/// Bool of x's shape, for every dtype.
Tensor isnan(const Tensor& x);
/// Neither NaN nor infinite.
Tensor isfinite(const Tensor& x);

/// Whether some (each) element over `dim` is not zero; an empty list means all dimensions. Bool; over nothing
/// any is false and all is true.
Tensor any(const Tensor& x, const std::vector<int64_t>& dim = {}, bool keepdim = false);
Tensor all(const Tensor& x, const std::vector<int64_t>& dim = {}, bool keepdim = false);

/// x with `value` where `mask` (bool, broadcast to x) is true; no gradient flows there.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);

extern const Op kLogicalAnd, kLogicalOr, kLogicalNot, kIsnan, kIsfinite, kAny, kAllOf, kMaskedFill;

}  // namespace troupe::ops
