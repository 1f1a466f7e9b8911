// Views of a tensor's elements in another geometry, and the copies next to them (clone, to, flip, tril,
// triu).
#pragma once
#include <optional>

#include "ops/dispatch/op.h"

namespace troupe::ops {

// ---- views: the result shares the storage
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
Tensor permute(const Tensor& x, const IntList& dims);
/// One size may be -1. A copy where no strides express the result.
Tensor reshape(const Tensor& x, const IntList& shape);
/// Repeats dimensions of size 1 (and adds leading ones) without copying; -1 keeps a size.
Tensor expand(const Tensor& x, const IntList& shape);
/// Elements start, start + step, ... before stop along dim; from the first, to the last, where nothing is
/// said. Negative start and stop count from the end; both are cut to the size. step >= 1.
Tensor slice(const Tensor& x, int64_t dim = 0, std::optional<int64_t> start = {},
             std::optional<int64_t> stop = {}, int64_t step = 1);
/// Removes dimension dim if it has size 1.
Tensor squeeze(const Tensor& x, int64_t dim);
/// Adds a dimension of size 1 before dim (-1: at the end).
Tensor unsqueeze(const Tensor& x, int64_t dim);

// ---- copies
/// A contiguous copy.
Tensor clone(const Tensor& x);
/// x itself if contiguous, else a contiguous copy.
Tensor contiguous(const Tensor& x);
/// x itself if it has that dtype, else a converted copy. Only floating to floating carries a gradient.
Tensor to(const Tensor& x, DType dtype);
/// x itself if it is on that device, else a copy there; the gradient goes back to where x is.
Tensor to(const Tensor& x, Device device);
Tensor flip(const Tensor& x, const IntList& dims);
/// Keeps what is on and below the diagonal of the last two dimensions, zero above.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
/// Keeps what is on and above it.
Tensor triu(const Tensor& x, int64_t diagonal = 0);

extern const Op kTranspose, kPermute, kReshape, kExpand, kSlice, kSqueeze, kUnsqueeze, kClone, kTo, kToDevice,
    kFlip, kTril, kTriu;
/// Zeros of `shape` with x where slice(dim, start, ., step) would read: the gradient of slice.
extern const Op kSliceGrad;

}  // namespace troupe::ops
