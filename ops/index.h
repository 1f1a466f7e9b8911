// Picking, placing and joining elements. Indices are int64 or int32; out of range is `invalid`.
#pragma once
#include <optional>

#include "ops/dispatch/op.h"

namespace troupe::ops {

/// ids [..], weight [n, d] -> rows of weight [.., d].
Tensor embedding(const Tensor& ids, const Tensor& weight);
/// Row padding_idx gets no gradient.
Tensor embedding(const Tensor& ids, const Tensor& weight, std::optional<int64_t> padding_idx);
/// Slices of x along dim, numbered by the 1-d index.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
/// out[i][j] = x[i][index[i][j]] for dim 1; index has x's rank and is nowhere larger than x, dim excepted.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
/// A copy of x with out[i][index[i][j]] += src[i][j] for dim 1; index and src have one shape.
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
/// A copy of x whose slices along dim, numbered by the 1-d index, are those of source; of equal numbers the
/// last.
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
/// A copy of x with alpha source added to its slices along dim, numbered by the 1-d index; of equal numbers
/// all count.
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha = 1);
/// Parts of one shape but for dim; a part [0] fits all.
Tensor cat(const Tensors& tensors, int64_t dim = 0);
/// Joins tensors of one shape along a new dimension.
Tensor stack(const Tensors& tensors, int64_t dim = 0);
/// Consecutive pieces along dim, as views; the sizes add up to x's.
Tensors split(const Tensor& x, const IntList& split_sizes, int64_t dim = 0);
/// pad = {before, after} of the last dimension, then of the one before it, and so on; filled with `value`.
/// Widths below 0 take elements away. The other modes repeat elements: "reflect" those beside the border,
/// "replicate" the border, "circular" those of the other end.
Tensor pad(const Tensor& x, const IntList& pad, const std::string& mode = "constant", Scalar value = 0);
/// ids [..] in [0, num_classes) -> int64 [.., num_classes] of 0 and 1; of -1 classes, as many as ids has.
Tensor one_hot(const Tensor& ids, int64_t num_classes = -1);

extern const Op kEmbedding, kEmbeddingGrad, kIndexSelect, kIndexSelectGrad, kIndexAdd, kIndexCopy, kGather,
    kScatterAdd, kCat, kStack, kSplit, kPad, kOneHot;

}  // namespace troupe::ops
