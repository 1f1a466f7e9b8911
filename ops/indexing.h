// Indexing with numbers, slices and tensors, as x[...] of PyTorch.
#pragma once
#include "core/tensor/indexing.h"

namespace troupe::ops {

/// Numbers, slices, None and Ellipsis alone give a view. A mask (bool, of the shape of the dimensions that it
/// stands for) counts as one int64 tensor for each of its dimensions; tensors broadcast, and give a copy,
/// with their common shape in place of their dimensions if those follow each other, else in front. `invalid`
/// out of range.
Tensor index(const Tensor& x, const std::vector<TensorIndex>& indices);
/// x[indices] = value, in place; see ops/inplace.h. `value` broadcasts; with tensors as indices it has x's
/// dtype. accumulate: added instead; where indices repeat, all count.
void index_put_(const Tensor& x, const std::vector<TensorIndex>& indices, const Tensor& value,
                bool accumulate = false);
void index_put_(const Tensor& x, const std::vector<TensorIndex>& indices, Scalar value);

}  // namespace troupe::ops
