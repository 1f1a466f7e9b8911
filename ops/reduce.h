// Reductions over dimensions, and cumsum.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// Over all dimensions; the result is 0-d.
Tensor sum(const Tensor& x);
Tensor mean(const Tensor& x);
/// Over `dim` (negative ones count from the end; an empty list means all). keepdim leaves size 1 there.
/// sum also takes integers and bool (result int64), as prod and cumsum; mean, var and norm floating dtypes.
Tensor sum(const Tensor& x, const IntList& dim, bool keepdim = false);
Tensor mean(const Tensor& x, const IntList& dim, bool keepdim = false);
/// The elements converted first, and the result of that dtype; so prod(), cumsum() and cumprod().
Tensor sum(const Tensor& x, const IntList& dim, bool keepdim, DType dtype);
Tensor mean(const Tensor& x, const IntList& dim, bool keepdim, DType dtype);
Tensor prod(const Tensor& x, const IntList& dim, bool keepdim, DType dtype);
Tensor norm(const Tensor& x, Scalar p, const IntList& dim, bool keepdim, DType dtype);
/// Any dtype; `invalid` over nothing. Equal largest (smallest) elements share the gradient.
Tensor amax(const Tensor& x, const IntList& dim = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const IntList& dim = {}, bool keepdim = false);
/// Of integers and bools float32.
Tensor logsumexp(const Tensor& x, const IntList& dim, bool keepdim = false);
/// Divided by n - 1 if unbiased, else by n.
Tensor var(const Tensor& x, const IntList& dim = {}, bool unbiased = true, bool keepdim = false);
/// The square root of var. Its gradient at zero is zero. (In a program with `using namespace troupe`, C++
/// takes the bare name for the namespace: write x.std() or troupe::std(x).)
Tensor std(const Tensor& x, const IntList& dim = {}, bool unbiased = true, bool keepdim = false);
/// Any dtype (integers and bool give int64); 1 over nothing.
Tensor prod(const Tensor& x, const IntList& dim = {}, bool keepdim = false);
/// Index (int64) of the first largest (smallest) element along dim; every dtype but bool. A NaN is both.
Tensor argmax(const Tensor& x, int64_t dim, bool keepdim = false);
Tensor argmin(const Tensor& x, int64_t dim, bool keepdim = false);
/// Euclidean norm of all elements, 0-d; it is finite and not 0 wherever float64 can hold it. Its gradient at
/// zero is zero.
Tensor norm(const Tensor& x);
/// The p-norm over dim (none: all dimensions): the sum of |x|^p to the power 1 / p; the largest absolute
/// value of p = inf, the smallest of -inf, and of p = 0 the number of elements that are not 0.
Tensor norm(const Tensor& x, Scalar p, const IntList& dim = {}, bool keepdim = false);
/// Any dtype (integers and bool give int64).
Tensor cumsum(const Tensor& x, int64_t dim);
Tensor cumsum(const Tensor& x, int64_t dim, DType dtype);

extern const Op kSum, kMean, kAmax, kAmin, kLogsumexp, kVar, kStd, kProd, kArgmax, kArgmin, kNorm, kCumsum;

}  // namespace troupe::ops
