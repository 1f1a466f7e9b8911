// The elements of a strided view, run by run.
#pragma once
#include <cstdint>

#include "core/tensor/tensor.h"

namespace troupe {

/// Calls f(offset, count, step) for every run of a strided view along its last dimension, in row-major order.
template <class F>
void for_each_run(const Tensor& t, F&& f) {
  const Shape& shape = t.shape();
  const Shape& strides = t.strides();
  const int rank = shape.rank();
  if (t.numel() == 0) return;
  if (rank == 0 || t.is_contiguous()) return f(int64_t{0}, t.numel(), int64_t{1});
  int64_t index[kMaxDims] = {}, at = 0;
  for (;;) {
    f(at, shape[rank - 1], strides[rank - 1]);
    int d = rank - 2;
    for (; d >= 0; --d) {
      at += strides[d];
      if (++index[d] < shape[d]) break;
      at -= strides[d] * shape[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace troupe
