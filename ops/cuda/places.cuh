// Where elements of a shape lie in several operands.
#pragma once
#include <cstdint>

#include "ops/dispatch/geometry.h"

namespace troupe::ops::on_cuda {

/// Where element i of a shape is in N operands. Dimensions that lie together are merged.
template <int N>
struct Places {
  int rank = 0;
  bool dense = false;  ///< element i is at i in all of them
  bool flat = false;   ///< or at 0 in some, where step[0] is 0
  int64_t size[kMaxDims] = {}, step[kMaxDims][N] = {};

  Places(const Shape& shape, const Shape (&strides)[N]) {
    for (int d = 0; d < shape.rank(); ++d) {
      if (shape[d] == 1) continue;
      bool merges = rank > 0;
      for (int k = 0; k < N && merges; ++k) merges = step[rank - 1][k] == strides[k][d] * shape[d];
      if (merges)
        size[rank - 1] *= shape[d];
      else
        size[rank++] = shape[d];
      for (int k = 0; k < N; ++k) step[rank - 1][k] = strides[k][d];
    }
    dense = rank <= 1;
    flat = rank == 1;
    for (int k = 0; k < N && rank; ++k) {
      dense &= step[0][k] == 1;
      flat &= step[0][k] == 1 || step[0][k] == 0;
    }
    small_ = shape.numel() <= INT32_MAX;
  }

  __device__ void find(int64_t i, int64_t (&at)[N]) const {
    for (int k = 0; k < N; ++k) at[k] = dense ? i : 0;
    if (dense) return;
    if (small_)
      walk(static_cast<uint32_t>(i), at);
    else
      walk(i, at);
  }

 private:
  bool small_ = false;  // numbers of elements fit 32 bits, in which a division takes a fraction of the time

  template <class I>
  __device__ void walk(I i, int64_t (&at)[N]) const {
    for (int d = rank - 1; d >= 0; --d) {
      const I rest = i / static_cast<I>(size[d]), index = i - rest * static_cast<I>(size[d]);
      for (int k = 0; k < N; ++k) at[k] += static_cast<int64_t>(index) * step[d][k];
      i = rest;
    }
  }
};

}  // namespace troupe::ops::on_cuda
