// Largest, smallest and middle elements.
#pragma once
#include "ops/dispatch/op.h"
#include "ops/sort.h"

namespace troupe::ops {

/// The largest (smallest) element of all, 0-d; every dtype. NaN if there is one; `invalid` of no elements.
/// Equal ones share the gradient.
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
/// Of each two elements: maximum() and minimum().
Tensor max(const Tensor& x, const Tensor& other);
Tensor min(const Tensor& x, const Tensor& other);
/// Along dim: the first largest (smallest) elements, which get the gradient, and their places.
ValuesAndIndices max(const Tensor& x, int64_t dim, bool keepdim = false);
ValuesAndIndices min(const Tensor& x, int64_t dim, bool keepdim = false);

/// The element in the middle of the order, the lower one of two; every dtype but bool. NaN if there is one,
/// and of no elements. Equal ones share the gradient.
Tensor median(const Tensor& x);
/// Along dim, with its place, which gets the gradient; `invalid` over nothing.
ValuesAndIndices median(const Tensor& x, int64_t dim, bool keepdim = false);

/// The place of the first largest (smallest) element among all in row-major order, int64, 0-d; every dtype
/// but bool.
Tensor argmax(const Tensor& x);
Tensor argmin(const Tensor& x);

extern const Op kMax, kMin, kMaxAlong, kMinAlong, kMedian;

}  // namespace troupe::ops
