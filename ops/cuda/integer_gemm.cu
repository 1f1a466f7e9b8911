// Products of integers, which cuBLASLt does not know: tiles of our own, for every shape and stride.
#include "ops/cuda/gemm.h"
#include "ops/cuda/reduce.cuh"

namespace troupe::ops::on_cuda {
namespace {

// A block makes tiles of 64 x 64 elements; each thread 4 x 4 of them, 16 rows and columns apart,
// so that neighbours read and write neighbours.
constexpr int kTile = 64, kDepth = 16, kSide = 16, kEach = kTile / kSide;
static_assert(kSide * kSide == kThreads);

struct IntegerProduct {
  int64_t* c;
  const int64_t *a, *b;
  int64_t m, n, k;
  int64_t a_row, a_column, b_row, b_column;  // strides
  Places<2> batch;

  template <class F>
  void visit(F&& f) {
    visit_pointers(f, c, a, b);
  }
  int64_t tiles() const { return ((m + kTile - 1) / kTile) * ((n + kTile - 1) / kTile); }

  // Elements of a tile are read along the dimension in which they lie together.
  __device__ static void load(int64_t (*tile)[kTile + 1], const int64_t* x, int64_t width, int64_t depth,
                              int64_t along, int64_t down) {
    for (int e = static_cast<int>(threadIdx.x); e < kTile * kDepth; e += static_cast<int>(kThreads)) {
      const int i = down == 1 ? e / kDepth : e % kTile, l = down == 1 ? e % kDepth : e / kTile;
      tile[l][i] = i < width && l < depth ? x[i * along + l * down] : 0;
    }
  }

  __device__ void operator()(int64_t block) const {
    __shared__ int64_t left[kDepth][kTile + 1];
    __shared__ int64_t right[kDepth][kTile + 1];
    const int64_t across = (n + kTile - 1) / kTile, per_matrix = (m + kTile - 1) / kTile * across;
    const int64_t matrix = block / per_matrix, tile = block % per_matrix;
    const int64_t i0 = tile / across * kTile, j0 = tile % across * kTile;
    int64_t at[2];
    batch.find(matrix, at);
    const int64_t *x = a + at[0] + i0 * a_row, *y = b + at[1] + j0 * b_column;
    const int ty = static_cast<int>(threadIdx.x) / kSide, tx = static_cast<int>(threadIdx.x) % kSide;
    int64_t sums[kEach][kEach] = {};
    for (int64_t l0 = 0; l0 < k; l0 += kDepth) {
      load(left, x + l0 * a_column, m - i0, k - l0, a_row, a_column);
      load(right, y + l0 * b_row, n - j0, k - l0, b_column, b_row);
      __syncthreads();
      for (int l = 0; l < kDepth && l < k - l0; ++l)
        for (int i = 0; i < kEach; ++i)
          for (int j = 0; j < kEach; ++j)
            sums[i][j] = plus(sums[i][j], times(left[l][ty + i * kSide], right[l][tx + j * kSide]));
      __syncthreads();
    }
    for (int i = 0; i < kEach; ++i)
      for (int j = 0; j < kEach; ++j) {
        const int64_t row = i0 + ty + i * kSide, column = j0 + tx + j * kSide;
        if (row < m && column < n) c[(matrix * m + row) * n + column] = sums[i][j];
      }
  }
};

}  // namespace

void integer_gemm(const char* name, const Tensor& a, const Tensor& b, const Shape& batch, const Tensor& out) {
  const int ra = a.dim(), rb = b.dim();
  const IntegerProduct product{
      elements<int64_t>(out),
      elements<const int64_t>(a),
      elements<const int64_t>(b),
      a.shape()[ra - 2],
      b.shape()[rb - 1],
      a.shape()[ra - 1],
      a.strides()[ra - 2],
      a.strides()[ra - 1],
      b.strides()[rb - 2],
      b.strides()[rb - 1],
      {batch, {broadcast_strides(batch_of(a), batch), broadcast_strides(batch_of(b), batch)}}};
  for_each_block(name, out.device(), batch.numel() * product.tiles(), kThreads, product);
}

}  // namespace troupe::ops::on_cuda
