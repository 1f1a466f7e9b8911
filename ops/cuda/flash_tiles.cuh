// Tiles of attention and convolution in shared memory, and their products on the matrix unit. Of halves a
// product takes 16 columns at once; of float32 eight, as three products of TF32: high x high, high x low and
// low x high halves of the digits.
#pragma once
#include "ops/cuda/elementwise.cuh"
#include "ops/cuda/matrix_unit.cuh"

namespace troupe::ops::on_cuda {

namespace mu = matrix_unit;

__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x) & 31; }

template <class T>
constexpr int kChunk = 16 / static_cast<int>(sizeof(T));  // elements that are read at once

// Where chunk c of row r lies in a tile: chunks of rows are mixed so that the reads of a warp come from all
// banks. Of halves it reads a chunk of 8 rows in a column; of floats half a chunk of 4 rows, and a word of
// every second row.
template <class T, int kWidth>
__device__ __forceinline__ int tile_at(int r, int c) {
  const int mixed = sizeof(T) == 2 ? c ^ (r & 7) : c ^ (((r & 3) ^ (r >> 2 & 1)) << 1);
  return r * kWidth + mixed * kChunk<T>;
}

// A thread's share of copies of tiles of kRows rows that lie `step` apart.
template <class T, int kRows, int kWidth, int kThreads>
class TileReader {
 public:
  __device__ __forceinline__ TileReader(const T* from, int64_t step, int width)
      : column_(static_cast<int>(threadIdx.x) % kChunks),
        row_(static_cast<int>(threadIdx.x) / kChunks),
        inside_(column_ * kChunk<T> < width),
        from_(from),
        mine_(from + row_ * step + (inside_ ? column_ * kChunk<T> : 0)),
        step_(step) {}
  // Rows from `first` on, of which `rows` are there; zeros for the others, and for columns beyond the width.
  __device__ __forceinline__ void read(T* to, int64_t first, int64_t rows) const {
    const T* p = mine_ + first * step_;
#pragma unroll
    for (int r = 0; r < kRows; r += kAtOnce, p += kAtOnce * step_) {
      const bool there = inside_ && row_ + r < rows;
      mu::copy_async(to + tile_at<T, kWidth>(row_ + r, column_), there ? p : from_, there);
    }
  }

 private:
  static constexpr int kChunks = kWidth / kChunk<T>, kAtOnce = kThreads / kChunks;
  static_assert(kRows % kAtOnce == 0);
  int column_, row_;
  bool inside_;
  const T *from_, *mine_;
  int64_t step_;
};

// ---- fragments: of A 16 rows and kStep columns, of B two of kStep rows and 8 columns
template <class T>
struct Fragment {
  static constexpr int kStep = 16;
  uint32_t x[4];
};
template <>
struct Fragment<float> {
  static constexpr int kStep = 8;
  uint32_t high[4], low[4];
  __device__ __forceinline__ void set(int i, float value) {
    high[i] = mu::tf32(value);
    float rounded;
    memcpy(&rounded, &high[i], sizeof rounded);
    low[i] = mu::tf32(value - rounded);
  }
};

// sums += a b, for both fragments of b
template <class T>
__device__ __forceinline__ void multiply(float (&first)[4], float (&second)[4], const Fragment<T>& a,
                                         const Fragment<T>& b) {
  if constexpr (sizeof(T) == 2)
    mu::mma_twice<T>(first, second, a.x, b.x);
  else
    mu::mma_twice_tf32(first, second, a.high, a.low, b.high, b.low);
}

// A of 16 rows of a tile from `first` on, columns kStep k and those behind. Of floats, columns 2t and 2t + 1
// stand for t and t + 4, in A as in B: so they lie together, and as results do.
template <int kWidth, class T>
__device__ __forceinline__ void load_a(Fragment<T>& a, const T* tile, int first, int k) {
  const int l = lane_id();
  if constexpr (sizeof(T) == 2) {
    mu::load_matrices<false>(a.x,
                             tile + tile_at<T, kWidth>(first + (l >> 3 & 1) * 8 + (l & 7), 2 * k + (l >> 4)));
  } else {
    const int g = l >> 2, t = l & 3;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const T* p = tile + tile_at<T, kWidth>(first + 8 * h + g, 2 * k + (t >> 1)) + (t & 1) * 2;
      const float2 both = mu::load_shared(reinterpret_cast<const float2*>(p));
      a.set(h, both.x);
      a.set(h + 2, both.y);
    }
  }
}
// Two fragments of B whose columns are 16 rows of the tile from `first` on.
template <int kWidth, class T>
__device__ __forceinline__ void load_b_of_rows(Fragment<T>& b, const T* tile, int first, int k) {
  const int l = lane_id();
  if constexpr (sizeof(T) == 2) {
    mu::load_matrices<false>(b.x,
                             tile + tile_at<T, kWidth>(first + (l >> 4) * 8 + (l & 7), 2 * k + (l >> 3 & 1)));
  } else {
    const int g = l >> 2, t = l & 3;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const T* p = tile + tile_at<T, kWidth>(first + 8 * h + g, 2 * k + (t >> 1)) + (t & 1) * 2;
      const float2 both = mu::load_shared(reinterpret_cast<const float2*>(p));
      b.set(2 * h, both.x);
      b.set(2 * h + 1, both.y);
    }
  }
}
// Two fragments of B whose rows are those of the tile from kStep k on, columns 16 n and those behind.
template <int kWidth, class T>
__device__ __forceinline__ void load_b_of_columns(Fragment<T>& b, const T* tile, int k, int n) {
  const int l = lane_id();
  if constexpr (sizeof(T) == 2) {
    mu::load_matrices<true>(b.x,
                            tile + tile_at<T, kWidth>(16 * k + (l >> 3 & 1) * 8 + (l & 7), 2 * n + (l >> 4)));
  } else {
    const int g = l >> 2, t = l & 3;
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const T* p = tile + tile_at<T, kWidth>(8 * k + 2 * t + i, 4 * n + 2 * h + (g >> 2)) + (g & 3);
        b.set(2 * h + i, mu::load_shared(p));
      }
  }
}
// A of results: of two tiles of 8 columns, or one of floats.
template <class T, int kNt>
__device__ __forceinline__ void make_a(Fragment<T>& a, const float (&results)[kNt][4], int k) {
  if constexpr (sizeof(T) == 2) {
    const auto &first = results[2 * k], &second = results[2 * k + 1];
    a.x[0] = mu::pair<T>(first[0], first[1]);
    a.x[1] = mu::pair<T>(first[2], first[3]);
    a.x[2] = mu::pair<T>(second[0], second[1]);
    a.x[3] = mu::pair<T>(second[2], second[3]);
  } else {
    a.set(0, results[k][0]);
    a.set(1, results[k][2]);
    a.set(2, results[k][1]);
    a.set(3, results[k][3]);
  }
}

// What a warp sums up: kMt times 16 rows, kNt times 8 columns.
template <int kMt, int kNt>
struct WarpTile {
  float x[kMt][kNt][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < kMt; ++m)
#pragma unroll
      for (int n = 0; n < kNt; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) x[m][n][e] = 0;
  }
  // f(x, m, h, n, e) for what this lane has: row 16 m + 8 h + g, column 8 n + 2 t + e.
  template <class F>
  __device__ __forceinline__ void each(F&& f) {
#pragma unroll
    for (int m = 0; m < kMt; ++m)
#pragma unroll
      for (int n = 0; n < kNt; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
          for (int e = 0; e < 2; ++e) f(x[m][n][2 * h + e], m, h, n, e);
  }
};

// A warp's rows of a tile as A: kept in registers, or read when they are wanted.
template <class T, int kWidth, int kMt, bool kept>
struct WarpRows {
  static constexpr int kSteps = kWidth / Fragment<T>::kStep;
  const T* tile;
  int first;
  Fragment<T> a[kept ? kSteps : 1][kMt];
  __device__ __forceinline__ WarpRows(const T* tile, int first) : tile(tile), first(first) {}
  __device__ __forceinline__ void fetch() {
    if constexpr (kept)
#pragma unroll
      for (int k = 0; k < kSteps; ++k)
#pragma unroll
        for (int m = 0; m < kMt; ++m) load_a<kWidth>(a[k][m], tile, first + 16 * m, k);
  }
  __device__ __forceinline__ void get(Fragment<T> (&to)[kMt], int k) const {
#pragma unroll
    for (int m = 0; m < kMt; ++m)
      if constexpr (kept)
        to[m] = a[k][m];
      else
        load_a<kWidth>(to[m], tile, first + 16 * m, k);
  }
};

// sums += rows (tile)^T
template <class T, int kWidth, int kMt, int kNt, bool kept>
__device__ __forceinline__ void add_scores_of(WarpTile<kMt, kNt>& sums,
                                              const WarpRows<T, kWidth, kMt, kept>& rows, const T* tile) {
  constexpr int kUnrolled = kept || kWidth < 128 ? kWidth
                            : sizeof(T) == 4     ? 1
                                                 : 2;  // more addresses fill registers
#pragma unroll(kUnrolled)
  for (int k = 0; k < rows.kSteps; ++k) {
    Fragment<T> a[kMt];
    rows.get(a, k);
#pragma unroll
    for (int n = 0; n < kNt; n += 2) {
      Fragment<T> b;
      load_b_of_rows<kWidth>(b, tile, 8 * n, k);
#pragma unroll
      for (int m = 0; m < kMt; ++m) multiply(sums.x[m][n], sums.x[m][n + 1], a[m], b);
    }
  }
}
template <class T, int kWidth, int kMt, int kNt, bool kept>
__device__ __forceinline__ void scores_of(WarpTile<kMt, kNt>& sums,
                                          const WarpRows<T, kWidth, kMt, kept>& rows, const T* tile) {
  sums.clear();
  add_scores_of(sums, rows, tile);
}
// sums += weights tile
template <class T, int kWidth, int kMt, int kNt>
__device__ __forceinline__ void add_weighted(WarpTile<kMt, kWidth / 8>& sums,
                                             const WarpTile<kMt, kNt>& weights, const T* tile) {
#pragma unroll
  for (int k = 0; k < 8 * kNt / Fragment<T>::kStep; ++k) {
    Fragment<T> a[kMt];
#pragma unroll
    for (int m = 0; m < kMt; ++m) make_a(a[m], weights.x[m], k);
#pragma unroll
    for (int n = 0; n < kWidth / 16; ++n) {
      Fragment<T> b;
      load_b_of_columns<kWidth>(b, tile, k, n);
#pragma unroll
      for (int m = 0; m < kMt; ++m) multiply(sums.x[m][2 * n], sums.x[m][2 * n + 1], a[m], b);
    }
  }
}

// Where the rows of an array of one head are; columns lie together.
template <class T>
struct HeadRows {
  T* p;
  int64_t row;
};
// A warp's rows, times a factor for each, by way of its own rows of a tile, so that 16 bytes are written at
// once.
template <class T, int kWidth, int kMt>
__device__ __forceinline__ void write_rows(T* tile, int first, const WarpTile<kMt, kWidth / 8>& sums,
                                           const float (&factors)[kMt][2], HeadRows<T> to, int64_t rows,
                                           int width) {
  const int l = lane_id(), g = l >> 2, t = l & 3;
#pragma unroll
  for (int m = 0; m < kMt; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        const int r = first + 16 * m + 8 * h + g;
        const float one = sums.x[m][n][2 * h] * factors[m][h], two = sums.x[m][n][2 * h + 1] * factors[m][h];
        if constexpr (sizeof(T) == 2) {
          const uint32_t both = mu::pair<T>(one, two);
          memcpy(reinterpret_cast<char*>(tile + tile_at<T, kWidth>(r, n)) + 4 * t, &both, 4);
        } else {
          T* const p = tile + tile_at<T, kWidth>(r, 2 * n + (t >> 1)) + (t & 1) * 2;
          *reinterpret_cast<float2*>(p) = make_float2(one, two);
        }
      }
  __syncwarp();
  constexpr int kChunks = kWidth / kChunk<T>, kAtOnce = 32 / kChunks;
#pragma unroll
  for (int r = 0; r < 16 * kMt; r += kAtOnce) {
    const int row = first + r + l / kChunks, c = l % kChunks;
    if (row < rows && c * kChunk<T> < width)
      *reinterpret_cast<uint4*>(to.p + row * to.row + c * kChunk<T>) =
          *reinterpret_cast<const uint4*>(tile + tile_at<T, kWidth>(row, c));
  }
}

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

}  // namespace troupe::ops::on_cuda
