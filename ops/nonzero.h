// Elements and counts by value: results whose sizes follow from the elements.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// The places of the elements that are not zero, in row-major order: int64 [n, x.dim()]; every dtype.
Tensor nonzero(const Tensor& x);
/// The elements of x where `mask` (bool) is true, in row-major order: [n]. The two broadcast.
Tensor masked_select(const Tensor& x, const Tensor& mask);
/// The elements of x, flattened, at the places `index` (int64, negative ones count from the end), in its
/// shape.
Tensor take(const Tensor& x, const Tensor& index);
/// How often each number from 0 to the largest one, and at least to minlength - 1, occurs in x [n], integers
/// of at least 0: int64. With weights [n], their sums in place of counts: float32 of such weights, else
/// float64.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, int64_t minlength = 0);
/// How many elements over `dim` are not zero, int64; an empty list means all dimensions.
Tensor count_nonzero(const Tensor& x, const IntList& dim = {});

extern const Op kNonzero, kMaskedSelect, kTake, kBincount;

}  // namespace troupe::ops
