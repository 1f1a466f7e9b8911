// Writing along a dimension at the numbers of an index, and in the places of a mask.
#pragma once
#include "core/tensor/indexing.h"
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// A copy of x with out[i][index[i][j]] = src[i][j] for dim 1; index (int64) is nowhere larger than src, nor
/// than x, dim excepted. Of equal numbers the last one stays; each of them gets the gradient, as in PyTorch.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Scalar value);
/// Does the same with what src and equal numbers make together: "sum", "prod", "mean" (of integers rounded down),
/// "amax" or "amin"; with include_self also of what is in x at these places. "prod" of equal numbers goes by
/// way of the host, one after the other.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                      const std::string& reduce, bool include_self = true);
/// The first elements of source, in row-major order, where the mask (bool) is true.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);
/// A copy of x with `value` in its slices along dim with the numbers index; 0-d, of any device's dtype.
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, Scalar value);
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value);
/// It is gather() with an index that broadcasts, as argsort() makes; without dim of all elements in row-major
/// order.
Tensor take_along_dim(const Tensor& x, const Tensor& indices, std::optional<int64_t> dim = {});
/// A copy of x with index_put_().
Tensor index_put(const Tensor& x, const std::vector<TensorIndex>& indices, const Tensor& value,
                 bool accumulate = false);

extern const Op kScatter, kScatterReduce, kMaskedScatter;

}  // namespace troupe::ops
