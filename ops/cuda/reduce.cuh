// Reductions by blocks of threads, in a fixed order: results have the same bits from run to run.
//
// What is reduced, and how, says a struct like this one, of a value type A:
//   A start() const;  A fold(A, T element) const;  A merge(A, A) const;  R finish(A) const;
#pragma once
#include <cstdio>
#include <limits>

#include "core/tensor/creation.h"
#include "ops/cuda/elementwise.cuh"
#include "ops/dispatch/check.h"

namespace troupe::ops::on_cuda {

/// The values of all threads of the block, joined: the first warp takes those of the others, then its own in
/// halves. All threads call it, and all get the result.
template <class A, class Merge>
__device__ A block_merge(A value, const Merge& by) {
  alignas(16) __shared__ unsigned char memory[kThreads * sizeof(A)];
  A* parts = reinterpret_cast<A*>(memory);
  const unsigned me = threadIdx.x;
  parts[me] = value;
  __syncthreads();
  if (me < 32) {
    for (unsigned other = me + 32; other < blockDim.x; other += 32) value = by.merge(value, parts[other]);
    parts[me] = value;
    __syncwarp();
    for (unsigned width = 16; width > 0; width /= 2) {
      if (me < width) parts[me] = by.merge(parts[me], parts[me + width]);
      __syncwarp();
    }
  }
  __syncthreads();
  const A all = parts[0];
  __syncthreads();  // the next call writes there
  return all;
}

template <class A>
struct Plus {
  __device__ A merge(A a, A b) const { return a + b; }
};
template <class A>
__device__ A block_sum(A value) {
  return block_merge(value, Plus<A>{});
}
template <class T>
struct LargerNumber {
  __device__ T merge(T a, T b) const { return b > a ? b : a; }
};
template <class T>
__device__ T block_largest(T value) {
  return block_merge(value, LargerNumber<T>{});
}

template <class Body>
__global__ void each_block(int64_t rows, Body body) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) body(row);
}

/// body(block) for every block of `threads` threads.
template <class Body>
void for_each_block(const char* name, Device device, int64_t blocks, unsigned threads, const Body& body) {
  if (blocks <= 0) return;
  cuda::launch(name, device, each_block<Body>, dim3(static_cast<unsigned>(std::min(blocks, kMostBlocks))),
               dim3(threads), 0, blocks, body);
}

/// body(row) for every row, by all threads of a block, as many as suit n elements: a power of two.
template <class Body>
void for_each_row(const char* name, Device device, int64_t rows, int64_t n, const Body& body) {
  unsigned threads = 32;
  while (threads < kThreads && 4 * int64_t{threads} < n) threads *= 2;
  for_each_block(name, device, rows, threads, body);
}

/// Rows of n elements, `inner` apart: row r begins at begin(r).
struct Lines {
  int64_t outer = 1, n = 1, inner = 1;
  int64_t rows() const { return outer * inner; }
  __host__ __device__ int64_t begin(int64_t row) const { return row / inner * n * inner + row % inner; }
};

template <class T, class R, class Op>
struct ReduceByBlocks {
  R* out;
  const T* x;
  Lines lines;
  Op op;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x);
  }
  __device__ void operator()(int64_t row) const {
    const T* line = x + lines.begin(row);
    auto a = op.start();
    for (int64_t i = threadIdx.x; i < lines.n; i += blockDim.x) a = op.fold(a, line[i * lines.inner]);
    a = block_merge(a, op);
    if (threadIdx.x == 0) out[row] = op.finish(a);
  }
};

template <class T, class R, class Op>
struct ReduceByThreads {
  R* out;
  const T* x;
  Lines lines;
  Op op;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x);
  }
  __device__ void operator()(int64_t row) const {
    const T* line = x + lines.begin(row);
    auto a = op.start();
    for (int64_t i = 0; i < lines.n; ++i) a = op.fold(a, line[i * lines.inner]);
    out[row] = op.finish(a);
  }
};

constexpr int64_t kPiece = 1 << 14;  ///< elements of a long row that one block takes

// Piece p of row r to parts[r * pieces + p].
template <class T, class A, class Op>
struct ReducePieces {
  A* parts;
  const T* x;
  Lines lines;
  int64_t pieces;
  Op op;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, parts, x);
  }
  __device__ void operator()(int64_t at) const {
    const int64_t first = at % pieces * kPiece, last = first + kPiece < lines.n ? first + kPiece : lines.n;
    const T* line = x + lines.begin(at / pieces);
    auto a = op.start();
    for (int64_t i = first + threadIdx.x; i < last; i += blockDim.x) a = op.fold(a, line[i * lines.inner]);
    a = block_merge(a, op);
    if (threadIdx.x == 0) parts[at] = a;
  }
};

template <class A, class Op>
struct OfPieces {
  Op op;
  __device__ A start() const { return op.start(); }
  __device__ A fold(A a, A part) const { return op.merge(a, part); }
  __device__ A merge(A a, A b) const { return op.merge(a, b); }
  __device__ auto finish(A a) const { return op.finish(a); }
};

/// Memory for n values of any type, as a tensor: it is freed behind the kernels that use it.
template <class A>
Tensor scratch(int64_t n, Device device) {
  return empty({std::max<int64_t>(n, 1) * static_cast<int64_t>(sizeof(A))}, {uint8, device});
}

/// Every row of x to out[row]. A: the values between.
template <class A, class T, class R, class Op>
void reduce(const char* name, Device device, const Lines& lines, const T* x, R* out, const Op& op) {
  const int64_t rows = lines.rows();
  if (rows == 0) return;
  if (lines.n <= 8 || (lines.inner > 1 && rows >= (1 << 14)))
    return for_each(name, device, rows, ReduceByThreads<T, R, Op>{out, x, lines, op});
  if (lines.n <= 4 * kPiece)
    return for_each_row(name, device, rows, lines.n, ReduceByBlocks<T, R, Op>{out, x, lines, op});
  const int64_t pieces = (lines.n + kPiece - 1) / kPiece;
  const Tensor memory = scratch<A>(rows * pieces, device);
  A* parts = elements<A>(memory);
  for_each_row(name, device, rows * pieces, kPiece, ReducePieces<T, A, Op>{parts, x, lines, pieces, op});
  using Rest = OfPieces<A, Op>;
  for_each_row(name, device, rows, pieces, ReduceByBlocks<A, R, Rest>{out, parts, {rows, pieces, 1}, {op}});
}

/// A result that was computed in double: of halves by way of float32, as other devices have it.
template <class R>
__device__ R from_double(double x) {
  using Wide = std::conditional_t<sizeof(R) == 2, float, R>;
  return static_cast<R>(static_cast<Wide>(x));
}

/// float32 is summed in double: accurate whatever the length, and the kernel waits for memory anyway.
template <class T, class R>
struct Sum {
  double divisor = 1;
  __device__ double start() const { return 0; }
  __device__ double fold(double a, T v) const { return a + convert<double>(v); }
  __device__ double merge(double a, double b) const { return a + b; }
  __device__ R finish(double a) const { return from_double<R>(divisor == 1 ? a : a / divisor); }
};
/// The sum of the squares, in double.
template <class T, class R>
struct SumOfSquares {
  __device__ double start() const { return 0; }
  __device__ double fold(double a, T v) const { return a + static_cast<double>(v) * static_cast<double>(v); }
  __device__ double merge(double a, double b) const { return a + b; }
  __device__ R finish(double a) const { return static_cast<R>(a); }
};

/// x as rows: neighbouring reduced dimensions are taken as they lie; otherwise they are moved to the end by a
/// copy.
struct Rows {
  Tensor x;
  Lines lines;
};
inline Rows rows_of(const Tensor& x, const std::array<bool, kMaxDims>& reduced) {
  Rows r{x, {}};
  int stage = 0;  // 0 before, 1 in, 2 after the reduced dimensions
  bool adjacent = x.is_contiguous();
  for (int i = 0; i < x.dim(); ++i) {
    if (reduced[static_cast<size_t>(i)]) {
      adjacent &= stage < 2;
      stage = 1;
      r.lines.n *= x.shape()[i];
    } else {
      stage = stage ? 2 : 0;
      (stage ? r.lines.inner : r.lines.outer) *= x.shape()[i];
    }
  }
  if (adjacent) return r;
  Shape shape, strides;
  for (const bool wanted : {false, true})
    for (int i = 0; i < x.dim(); ++i)
      if (reduced[static_cast<size_t>(i)] == wanted) {
        shape.push_back(x.shape()[i]);
        strides.push_back(x.strides()[i]);
      }
  r.x = x.alias(shape, strides, x.storage_offset()).contiguous_data();
  r.lines.outer *= r.lines.inner;
  r.lines.inner = 1;
  return r;
}
inline Rows rows_of(const Call& c) {
  return rows_of(c.in[0], dim_flags(c, c.in[0].shape(), c.attrs.ints("dim")));
}
/// The lines of a contiguous tensor along the attribute `dim`.
inline Lines lines_along(const Call& c, const Shape& shape) {
  const Around a = around_dim(c, shape);
  return {a.outer, a.size, a.inner};
}

/// The device stops at a wrong index: the host learns of it with the next wait, and nothing is read or
/// written elsewhere.
__device__ inline void check_index(int64_t index, int64_t size) {
  if (index >= 0 && index < size) return;
  printf("index %lld is out of range for size %lld\n", static_cast<long long>(index),
         static_cast<long long>(size));
  __trap();
}

}  // namespace troupe::ops::on_cuda
