// More ways to arrange elements: repeated, stacked, on grids and diagonals.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// Gives x, repeats[i] times along dimension i, counted from the last one; as NumPy's tile.
Tensor tile(const Tensor& x, const IntList& repeats);
/// Each slice along dim `repeats` times in a row; without dim of all elements in row-major order.
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {});
/// Slice i repeats[i] times: integers [n] of at least 0, or [1] for all.
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim = {});
/// It is expand() by PyTorch's other name.
Tensor broadcast_to(const Tensor& x, const IntList& size);
/// Dimension dim as several of these sizes, one of which may be -1. A view where strides express it.
Tensor unflatten(const Tensor& x, int64_t dim, const IntList& sizes);
/// Side by side (along dimension 1, of 1-d tensors 0), upon each other (dimension 0), or in depth
/// (dimension 2). Tensors of fewer dimensions count as NumPy's atleast_1d, 2d, 3d.
Tensor hstack(const Tensors& tensors);
Tensor vstack(const Tensors& tensors);
Tensor dstack(const Tensors& tensors);
/// Each of n vectors over an n-dimensional grid of all. indexing: "ij", or "xy" with the first two
/// dimensions swapped.
Tensors meshgrid(const Tensors& tensors, const std::string& indexing = "ij");

/// Without those of these dimensions that have size 1. A view.
Tensor squeeze(const Tensor& x, const IntList& dim);
/// Dimensions source[i] moved to the places destination[i]; the others stay in order. A view.
Tensor movedim(const Tensor& x, const IntList& source, const IntList& destination);
/// The elements i, i + offset of dimensions dim1 and dim2, as the last dimension. A view.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
/// The last dimension on the diagonal of two new ones; zeros elsewhere.
Tensor diag_embed(const Tensor& x, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1);
/// Makes of a vector the matrix with that diagonal, of a matrix a copy of its diagonal.
Tensor diag(const Tensor& x, int64_t diagonal = 0);

extern const Op kDiagonal, kDiagEmbed, kUnflatten, kTile;

}  // namespace troupe::ops
