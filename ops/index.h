// Picking, placing and joining elements. Indices are int64; out of range is `invalid`.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// ids [..], weight [n, d] -> rows of weight [.., d].
Tensor embedding(const Tensor& ids, const Tensor& weight);
/// Slices of x along dim, numbered by the 1-d index.
Tensor index_select(const Tensor& x, const Tensor& index, int64_t dim);
/// out[i][j] = x[i][index[i][j]] for dim 1; index has x's rank and is nowhere larger than x, dim excepted.
Tensor gather(const Tensor& x, const Tensor& index, int64_t dim);
/// A copy of x with out[i][index[i][j]] += source[i][j] for dim 1; index and source have one shape.
Tensor scatter_add(const Tensor& x, const Tensor& index, const Tensor& source, int64_t dim);
/// A copy of x whose slices along dim, numbered by the 1-d index, are those of source; of equal numbers the
/// last.
Tensor index_copy(const Tensor& x, const Tensor& index, const Tensor& source, int64_t dim);
/// Parts of one shape but for dim; a part [0] fits all.
Tensor concat(const Tensors& parts, int64_t dim);
inline Tensor cat(const Tensors& parts, int64_t dim = 0) { return concat(parts, dim); }
/// Joins tensors of one shape along a new dimension.
Tensor stack(const Tensors& parts, int64_t dim);
/// Consecutive pieces along dim, as views; the sizes add up to x's.
Tensors split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim);
/// pad = {before, after} of the last dimension, then of the one before it, and so on; filled with `value`.
/// Sizes >= 0.
Tensor pad(const Tensor& x, const std::vector<int64_t>& pad, Scalar value = 0);
/// ids [..] in [0, classes) -> int64 [.., classes] of 0 and 1.
Tensor one_hot(const Tensor& ids, int64_t classes);

extern const Op kEmbedding, kEmbeddingGrad, kIndexSelect, kIndexAdd, kIndexCopy, kGather, kScatterAdd,
    kConcat, kStack, kSplit, kPad, kOneHot;

}  // namespace troupe::ops
