// Attention on the matrix unit: Dao 2023 (FlashAttention-2), sums in float32. A warp has rows of its own
// (queries; of the gradients of keys and values: keys), so that weights go from one product to the next in
// registers. Nothing is added from two blocks: the same bits from run to run.
#pragma once
#include "ops/cuda/flash_tiles.cuh"

namespace troupe::ops::on_cuda {

constexpr float kLog2e = 1.44269504088896340736f;

struct FlashSizes {
  int64_t queries, keys;
  int width, value_width;  // multiples of 16 bytes
  bool causal;
  float scale, scale2;  // scale2: for powers of two
  // Keys that query i sees.
  __device__ __forceinline__ int64_t seen(int64_t i) const { return causal && i + 1 < keys ? i + 1 : keys; }
};

// A block's rows of one head.
struct FlashTile {
  int64_t head, first, rows;
  // Of queries the last tiles, which see the most keys, begin.
  __device__ __forceinline__ FlashTile(int64_t block, int64_t all, int size, bool last_first) {
    const int64_t tiles = (all + size - 1) / size, tile = block % tiles;
    head = block / tiles;
    first = (last_first ? tiles - 1 - tile : tile) * size;
    rows = all - first < size ? all - first : size;
  }
};

/// kWarps warps with 16 kMt queries each, over tiles of kN keys.
template <class T, int kWidth, int kWarps, int kMt, int kN, bool kept>
struct FlashForward {
  static constexpr int kM = 16 * kMt * kWarps, kThreads = 32 * kWarps;
  static constexpr size_t kShared = sizeof(T) * kWidth * (kM + 2 * kN);
  using Element = T;
  HeadRows<const T> q, k, v;
  HeadRows<T> out;
  float* logs;  // [heads, queries]
  FlashSizes s;
  Places<4> heads;  // of q, k, v, out
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, q.p, k.p, v.p, out.p, logs);
  }

  __device__ __forceinline__ void operator()(int64_t block, T* shared) const {
    T *const tq = shared, *const tk = tq + kM * kWidth, *const tv = tk + kN * kWidth;
    const FlashTile tile(block, s.queries, kM, true);
    int64_t at[4];
    heads.find(tile.head, at);
    const int l = lane_id(), g = l >> 2, t = l & 3, own = static_cast<int>(threadIdx.x) / 32 * 16 * kMt;
    const TileReader<T, kN, kWidth, kThreads> keys(k.p + at[1], k.row, s.width),
        values(v.p + at[2], v.row, s.value_width);
    const auto part = [&](const auto& of, int n, T* to) {
      of.read(to, int64_t{n} * kN, s.keys - int64_t{n} * kN);
      mu::commit_copies();
    };
    int j = static_cast<int>((s.seen(tile.first + tile.rows - 1) + kN - 1) / kN) - 1;
    TileReader<T, kM, kWidth, kThreads>(q.p + at[0] + tile.first * q.row, q.row, s.width)
        .read(tq, 0, tile.rows);
    mu::commit_copies();
    if (j >= 0) part(keys, j, tk);

    WarpRows<T, kWidth, kMt, kept> queries(tq, own);
    WarpTile<kMt, kWidth / 8> sums;
    float top[kMt][2], total[kMt][2];
    sums.clear();
#pragma unroll
    for (int m = 0; m < kMt; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) top[m][h] = -INFINITY, total[m][h] = 0;
    for (bool fetched = false; j >= 0; --j) {
      mu::wait_for_copies<0>();
      __syncthreads();
      part(values, j, tv);
      if (!fetched) queries.fetch(), fetched = true;
      WarpTile<kMt, kN / 8> w;
      scores_of(w, queries, tk);
      const int64_t j0 = int64_t{j} * kN;
      if (j0 + kN > s.seen(tile.first + own))  // some are not seen by some of this warp's queries
        w.each([&](float& score, int m, int h, int n, int e) {
          const int seen = static_cast<int>(s.seen(tile.first + own + 16 * m + 8 * h + g) - j0);
          if (8 * n + 2 * t + e >= seen) score = -INFINITY;
        });
      mu::wait_for_copies<0>();
      __syncthreads();
      if (j > 0) part(keys, j - 1, tk);
#pragma unroll
      for (int m = 0; m < kMt; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float shrink = weigh(w.x[m], h, top[m][h], total[m][h]);
#pragma unroll
          for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) sums.x[m][n][2 * h + e] *= shrink;
        }
      add_weighted<T, kWidth>(sums, w, tv);
    }
    mu::wait_for_copies<0>();
    float factors[kMt][2];
#pragma unroll
    for (int m = 0; m < kMt; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float all = quad_sum(total[m][h]);
        factors[m][h] = s.keys ? 1 / all : 0;
        const int64_t row = tile.first + own + 16 * m + 8 * h + g;
        if (t == 0 && row < s.queries) logs[tile.head * s.queries + row] = top[m][h] * s.scale + logf(all);
      }
    __syncthreads();  // without a key, queries may still come to rows of others
    write_rows<T, kWidth>(tq, own, sums, factors, {out.p + at[3] + tile.first * out.row, out.row}, tile.rows,
                          s.value_width);
  }

 private:
  // Scores of one row become weights beside the largest one yet; gives what older sums shrink by. A quarter
  // of the row is in each of four lanes, and so is its total.
  __device__ __forceinline__ float weigh(float (&w)[kN / 8][4], int h, float& top, float& total) const {
    float high = w[0][2 * h];
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) high = fmaxf(high, fmaxf(w[n][2 * h], w[n][2 * h + 1]));
    high = fmaxf(quad_max(high), top);
    const float shift = high == -INFINITY ? 0.f : high * s.scale2;
    const float shrink = mu::exp2_fast(mu::fma_fast(top, s.scale2, -shift));
    top = high;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kN / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& weight = w[n][2 * h + e];
        weight = mu::exp2_fast(mu::fma_fast(weight, s.scale2, -shift));
        sum += weight;
      }
    total = mu::fma_fast(total, shrink, sum);
    return shrink;
  }
};

}  // namespace troupe::ops::on_cuda
