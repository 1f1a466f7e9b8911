// Geometry made of the views: flatten, select, chunk, roll, repeat.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// As reshape, but `invalid` where that would have to copy.
Tensor view(const Tensor& x, const IntList& shape);
/// Dimensions start_dim to end_dim (both included) in one; a 0-d tensor becomes [1]; of one dimension x
/// itself.
Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1);
/// Slice number `index` (negative: from the end) along dim, without that dimension. A view.
Tensor select(const Tensor& x, int64_t dim, int64_t index);
/// The elements start, ..., start + length - 1 along dim; a negative start counts from the end. A view.
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);
/// Every slice along dim, without that dimension. Views.
Tensors unbind(const Tensor& x, int64_t dim = 0);
/// Without its dimensions of size 1. A view.
Tensor squeeze(const Tensor& x);
/// Dimension `source` moved to place `destination`; the others stay in order. A view.
Tensor movedim(const Tensor& x, int64_t source, int64_t destination);
/// A matrix with its dimensions swapped; one of fewer dimensions as it is. A view; `invalid` of more than
/// two.
Tensor t(const Tensor& x);
/// Views of `size` slices each along dim, the last one maybe with less; one of none if there are none.
Tensors split(const Tensor& x, int64_t split_size, int64_t dim = 0);
/// At most `chunks` of them, as large as each other but for the last.
Tensors chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);

/// Moves the elements by shifts[i] places along dims[i]; what leaves at the end comes in at the beginning.
/// Without dims they move in row-major order.
Tensor roll(const Tensor& x, const IntList& shifts, const IntList& dims = {});
/// x, repeats[i] times along dimension i; leading dimensions may be added.
Tensor repeat(const Tensor& x, const IntList& repeats);

extern const Op kRoll, kRepeat;

}  // namespace troupe::ops
