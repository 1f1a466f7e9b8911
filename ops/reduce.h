// Reductions over dimensions, and cumsum.
#pragma once
#include "ops/op.h"

namespace troupe::ops {

/// Over all dimensions; the result is 0-d.
Tensor sum(const Tensor& x);
Tensor mean(const Tensor& x);
/// Over `dim` (negative ones count from the end; an empty list means all). keepdim leaves size 1 there.
/// sum also takes int64 (result int64) and bool (result int64); the others floating dtypes.
Tensor sum(const Tensor& x, const std::vector<int64_t>& dim, bool keepdim = false);
Tensor mean(const Tensor& x, const std::vector<int64_t>& dim, bool keepdim = false);
/// `invalid` over nothing. Equal largest (smallest) elements share the gradient.
Tensor amax(const Tensor& x, const std::vector<int64_t>& dim, bool keepdim = false);
Tensor amin(const Tensor& x, const std::vector<int64_t>& dim, bool keepdim = false);
Tensor logsumexp(const Tensor& x, const std::vector<int64_t>& dim, bool keepdim = false);
/// Divided by n - 1 if unbiased, else by n.
Tensor var(const Tensor& x, const std::vector<int64_t>& dim, bool unbiased = true, bool keepdim = false);
/// Index (int64) of the first largest element along dim; every dtype.
Tensor argmax(const Tensor& x, int64_t dim);
/// Euclidean norm of all elements, 0-d. Its gradient at zero is zero.
Tensor norm(const Tensor& x);
Tensor cumsum(const Tensor& x, int64_t dim);

extern const Op kSum, kMean, kAmax, kAmin, kLogsumexp, kVar, kArgmax, kNorm, kCumsum;

}  // namespace troupe::ops
