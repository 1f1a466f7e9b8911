// Both passes of attention use these tiles of products and partial sums of a thread.
#pragma once
#include "ops/attention.h"
#include "ops/cuda/gemm.h"
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {

// One of the arrays [..., rows, width]: its strides within a matrix.
template <class T>
struct Matrix {
  T* p;
  int64_t row, column;
  explicit Matrix(const Tensor& t)
      : p(elements<T>(t)), row(t.strides()[t.dim() - 2]), column(t.strides()[t.dim() - 1]) {}
};

struct AttentionSizes {
  int64_t queries, keys, width, value_width;
  bool causal;
  double scale;

  AttentionSizes(const Tensor& q, const Tensor& k, const Tensor& v, const Attrs& attrs)
      : queries(q.size(-2)),
        keys(k.size(-2)),
        width(q.size(-1)),
        value_width(v.size(-1)),
        causal(attrs.flag("causal")),
        scale(attention_scale(attrs, width)) {}
  // Keys that query i sees.
  __device__ int64_t seen(int64_t i) const { return causal && i + 1 < keys ? i + 1 : keys; }
};

inline Shape leading_strides(const Tensor& t) { return leading(t.strides()); }

// ---- Tiles: kRows rows, which a block keeps, and kColumns columns, through which it goes. A thread has 2 x
// 4 of a tile's coefficients, 16 rows and columns apart, and of what it sums up one column and some rows.
constexpr int kRows = 32, kColumns = 64, kDepth = 32, kSide = 16;
static_assert(kSide * kSide == kThreads && kRows == 2 * kSide && kColumns == 4 * kSide);

// Rows of an array in one head.
template <class T>
struct Slab {
  const T* p;
  int64_t row, column, count, width;
  __device__ Slab(const Matrix<const T>& m, int64_t head, int64_t first, int64_t count, int64_t width)
      : p(m.p + head + first * m.row), row(m.row), column(m.column), count(count), width(width) {}
};

template <class T, int n>
__device__ void load(T (*to)[kDepth + 1], const Slab<T>& x, int64_t from) {
  for (int e = static_cast<int>(threadIdx.x); e < n * kDepth; e += static_cast<int>(kThreads)) {
    const int i = e / kDepth, l = e % kDepth;
    to[i][l] = i < x.count && from + l < x.width ? x.p[i * x.row + (from + l) * x.column] : T{0};
  }
}

// sums[i][j]: the product of rows ty + 16 i of x and tx + 16 j of y.
template <class T>
__device__ void products(T (&sums)[2][4], const Slab<T>& x, const Slab<T>& y) {
  __shared__ T left[kRows][kDepth + 1];
  __shared__ T right[kColumns][kDepth + 1];
  const int ty = static_cast<int>(threadIdx.x) / kSide, tx = static_cast<int>(threadIdx.x) % kSide;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j) sums[i][j] = 0;
  for (int64_t from = 0; from < x.width; from += kDepth) {
    load<T, kRows>(left, x, from);
    load<T, kColumns>(right, y, from);
    __syncthreads();
    for (int l = 0; l < kDepth; ++l)
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) sums[i][j] += left[ty + i * kSide][l] * right[tx + j * kSide][l];
    __syncthreads();
  }
}

// What a thread sums up: column `x` of rows first, first + 1, ...
template <class T, int width>
struct Sums {
  static constexpr int kEach = kRows * width / static_cast<int>(kThreads);
  T values[kEach] = {};
  int64_t x;
  int first;
  __device__ explicit Sums(int64_t from)
      : x(from + threadIdx.x % width), first(static_cast<int>(threadIdx.x) / width * kEach) {}
  __device__ void add(T (*coefficients)[kColumns + 1], const Slab<T>& m) {
    if (x >= m.width) return;
    for (int l = 0; l < m.count; ++l) {
      const T value = m.p[l * m.row + x * m.column];
      for (int r = 0; r < kEach; ++r) values[r] += coefficients[first + r][l] * value;
    }
  }
};

__device__ inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t tiles(int64_t n, int64_t size) { return (n + size - 1) / size; }

// A block's part: some columns of a tile of rows in a head.
struct Place {
  int64_t head, first, count, column;
  __device__ Place(int64_t block, int64_t rows, int64_t columns, int width) {
    const int64_t across = columns ? (columns + width - 1) / width : 1, down = (rows + kRows - 1) / kRows;
    column = block % across * width;
    first = block / across % down * kRows;
    head = block / across / down;
    count = smaller(kRows, rows - first);
  }
};

// Calls f with a constant: how many columns of a result a block makes.
template <class F>
void visit_width(int64_t width, F&& f) {
  if (width <= 64)
    f(std::integral_constant<int, 64>{});
  else
    f(std::integral_constant<int, 128>{});
}

/// The gradients of queries, keys and values, of any strides, from the inputs of attention_grad in their
/// order.
void attention_backward(const Call& c, const std::array<Tensor, 7>& in, const Tensor& dq, const Tensor& dk,
                        const Tensor& dv);

}  // namespace troupe::ops::on_cuda
