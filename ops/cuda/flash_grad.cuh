// The gradient of attention on the matrix unit: scores are computed once more, by tiles of keys for their
// gradients and those of values, and by tiles of queries.
#pragma once
#include "ops/cuda/flash_forward.cuh"

namespace troupe::ops::on_cuda {

// What both passes read and write.
template <class T>
struct FlashContext {
  HeadRows<const T> q, k, v, g, out;
  HeadRows<T> dq, dk, dv;
  const float *logs, *g_logs;  // [heads, queries]
  // Each query's sum of gradient times result, less the gradient of the logarithm; the pass over queries
  // makes it.
  float* to_delta;
  const float* delta;
  FlashSizes s;
  Places<8> heads;  // of q, k, v, g, dq, dk, dv, out
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, q.p, k.p, v.p, g.p, out.p, dq.p, dk.p, dv.p, logs, g_logs, to_delta, delta);
  }
};

/// The gradients of keys and values: kWarps warps with 16 kMt keys each, over tiles of kN queries.
template <class T, int kWidth, int kWarps, int kMt, int kN, bool kept>
struct FlashKeys {
  static constexpr int kM = 16 * kMt * kWarps, kThreads = 32 * kWarps;
  static constexpr int kNumbers = 2 * kN * 4 / static_cast<int>(sizeof(T));  // two floats of each query
  static constexpr int kStage = 2 * kN * kWidth + kNumbers;
  static constexpr size_t kShared = sizeof(T) * (2 * kM * kWidth + 2 * kStage);
  using Element = T;
  FlashContext<T> c;
  template <class F>
  void visit(F&& f) {
    c.visit(f);
  }

  __device__ __forceinline__ void operator()(int64_t block, T* shared) const {
    const FlashSizes& s = c.s;
    T *const tk = shared, *const tv = tk + kM * kWidth, *const stages = tv + kM * kWidth;
    const FlashTile tile(block, s.keys, kM, false);
    int64_t at[8];
    c.heads.find(tile.head, at);
    const int l = lane_id(), g = l >> 2, t = l & 3, own = static_cast<int>(threadIdx.x) / 32 * 16 * kMt;
    const TileReader<T, kN, kWidth, kThreads> queries(c.q.p + at[0], c.q.row, s.width),
        slopes_of(c.g.p + at[3], c.g.row, s.value_width);
    const auto stage = [&](int n) { return stages + (n & 1) * kStage; };
    const auto fetch = [&](int n) {
      const int64_t i0 = int64_t{n} * kN, there = s.queries - i0;
      T* const to = stage(n);
      queries.read(to, i0, there);
      slopes_of.read(to + kN * kWidth, i0, there);
      for (int e = static_cast<int>(threadIdx.x); e < 2 * kN; e += kThreads) {
        const float* const from = (e < kN ? c.logs : c.delta) + tile.head * s.queries;
        float* const number = reinterpret_cast<float*>(to + 2 * kN * kWidth) + e;
        mu::copy_async<4>(number, e % kN < there ? from + i0 + e % kN : from, e % kN < there);
      }
      mu::commit_copies();
    };
    // Queries before the first key see none of the tile.
    const int begin = s.causal ? static_cast<int>(tile.first / kN) : 0;
    const int end = static_cast<int>((s.queries + kN - 1) / kN);
    TileReader<T, kM, kWidth, kThreads>(c.k.p + at[1] + tile.first * c.k.row, c.k.row, s.width)
        .read(tk, 0, tile.rows);
    TileReader<T, kM, kWidth, kThreads>(c.v.p + at[2] + tile.first * c.v.row, c.v.row, s.value_width)
        .read(tv, 0, tile.rows);
    mu::commit_copies();
    if (begin < end) fetch(begin);

    WarpRows<T, kWidth, kMt, kept> keys(tk, own), values(tv, own);
    WarpTile<kMt, kWidth / 8> dk, dv;
    dk.clear(), dv.clear();
    for (int n = begin; n < end; ++n) {
      mu::wait_for_copies<0>();
      __syncthreads();
      if (n == begin) keys.fetch(), values.fetch();
      if (n + 1 < end) fetch(n + 1);
      const T *const tq = stage(n), *const tg = tq + kN * kWidth;
      const float *const logs = reinterpret_cast<const float*>(tq + 2 * kN * kWidth), *const delta =
                                                                                          logs + kN;
      WarpTile<kMt, kN / 8> w, slopes;
      scores_of(w, keys, tq);
      const int64_t i0 = int64_t{n} * kN;
      const int64_t hidden =
          s.causal ? tile.first + own - i0 : -kM;  // queries that the first key of the warp misses
      w.each([&](float& x, int m, int h, int i, int e) {
        const int query = 8 * i + 2 * t + e;
        x = mu::exp2_fast(mu::fma_fast(x, s.scale2, -logs[query] * kLog2e));
        if (hidden > -16 * kMt && static_cast<int>(hidden) + 16 * m + 8 * h + g > query) x = 0;
      });
      add_weighted<T, kWidth>(dv, w, tg);
      scores_of(slopes, values, tg);
      w.each([&](float& x, int m, int h, int i, int e) {
        x *= slopes.x[m][i][2 * h + e] - delta[8 * i + 2 * t + e];
      });
      add_weighted<T, kWidth>(dk, w, tq);
    }
    mu::wait_for_copies<0>();
    float one[kMt][2], scale[kMt][2];
#pragma unroll
    for (int m = 0; m < kMt; ++m) one[m][0] = one[m][1] = 1, scale[m][0] = scale[m][1] = s.scale;
    __syncthreads();  // without a query, keys may still come to rows of others
    write_rows<T, kWidth>(tk, own, dk, scale, {c.dk.p + at[5] + tile.first * c.dk.row, c.dk.row}, tile.rows,
                          s.width);
    write_rows<T, kWidth>(tv, own, dv, one, {c.dv.p + at[6] + tile.first * c.dv.row, c.dv.row}, tile.rows,
                          s.value_width);
  }
};

/// The gradient of queries: kWarps warps with 16 kMt queries each, over tiles of kN keys.
template <class T, int kWidth, int kWarps, int kMt, int kN, bool kept>
struct FlashQueries {
  static constexpr int kM = 16 * kMt * kWarps, kThreads = 32 * kWarps;
  static constexpr int kStage = 2 * kN * kWidth;
  static constexpr size_t kShared = sizeof(T) * (2 * kM * kWidth + 2 * kStage);
  using Element = T;
  FlashContext<T> c;
  template <class F>
  void visit(F&& f) {
    c.visit(f);
  }

  __device__ __forceinline__ void operator()(int64_t block, T* shared) const {
    const FlashSizes& s = c.s;
    T *const tq = shared, *const tg = tq + kM * kWidth, *const stages = tg + kM * kWidth;
    const FlashTile tile(block, s.queries, kM, true);
    int64_t at[8];
    c.heads.find(tile.head, at);
    const int l = lane_id(), g = l >> 2, t = l & 3, own = static_cast<int>(threadIdx.x) / 32 * 16 * kMt;
    const TileReader<T, kN, kWidth, kThreads> keys(c.k.p + at[1], c.k.row, s.width),
        values(c.v.p + at[2], c.v.row, s.value_width);
    const auto stage = [&](int n) { return stages + (n & 1) * kStage; };
    const auto fetch = [&](int n) {
      const int64_t j0 = int64_t{n} * kN;
      keys.read(stage(n), j0, s.keys - j0);
      values.read(stage(n) + kN * kWidth, j0, s.keys - j0);
      mu::commit_copies();
    };
    const int end = static_cast<int>((s.seen(tile.first + tile.rows - 1) + kN - 1) / kN);
    TileReader<T, kM, kWidth, kThreads>(c.q.p + at[0] + tile.first * c.q.row, c.q.row, s.width)
        .read(tq, 0, tile.rows);
    TileReader<T, kM, kWidth, kThreads>(c.g.p + at[3] + tile.first * c.g.row, c.g.row, s.value_width)
        .read(tg, 0, tile.rows);
    mu::commit_copies();
    if (end > 0) fetch(0);
    float log2_sum[kMt][2], delta[kMt][2];
#pragma unroll
    for (int m = 0; m < kMt; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int64_t row = tile.first + own + 16 * m + 8 * h + g;
        const bool there = row < s.queries;
        const int64_t number = tile.head * s.queries + row;
        log2_sum[m][h] = there ? c.logs[number] * kLog2e : 0;
        delta[m][h] = quad_sum(there ? part_of_product(row, at) : 0);
        if (there) delta[m][h] -= c.g_logs[number];
        if (there && t == 0) c.to_delta[number] = delta[m][h];
      }
    WarpRows<T, kWidth, kMt, kept> queries(tq, own), slopes_of(tg, own);
    WarpTile<kMt, kWidth / 8> dq;
    dq.clear();
    for (int n = 0; n < end; ++n) {
      mu::wait_for_copies<0>();
      __syncthreads();
      if (n == 0) queries.fetch(), slopes_of.fetch();
      if (n + 1 < end) fetch(n + 1);
      const T* const tk = stage(n);
      WarpTile<kMt, kN / 8> w, slopes;
      scores_of(w, queries, tk);
      scores_of(slopes, slopes_of, tk + kN * kWidth);
      const int64_t j0 = int64_t{n} * kN;
      const bool all = j0 + kN <= s.seen(tile.first + own);
      w.each([&](float& x, int m, int h, int j, int e) {
        x = mu::exp2_fast(mu::fma_fast(x, s.scale2, -log2_sum[m][h])) *
            (slopes.x[m][j][2 * h + e] - delta[m][h]);
        if (!all && 8 * j + 2 * t + e >= static_cast<int>(s.seen(tile.first + own + 16 * m + 8 * h + g) - j0))
          x = 0;
      });
      add_weighted<T, kWidth>(dq, w, tk);
    }
    mu::wait_for_copies<0>();
    float scale[kMt][2];
#pragma unroll
    for (int m = 0; m < kMt; ++m) scale[m][0] = scale[m][1] = s.scale;
    __syncthreads();  // without a key, queries may still come to rows of others
    write_rows<T, kWidth>(tq, own, dq, scale, {c.dq.p + at[4] + tile.first * c.dq.row, c.dq.row}, tile.rows,
                          s.width);
  }

 private:
  // Of a query's gradient and result, by a quad of lanes.
  __device__ __forceinline__ float part_of_product(int64_t row, const int64_t (&at)[8]) const {
    const int t = lane_id() & 3;
    const T *const g = c.g.p + at[3] + row * c.g.row, *const out = c.out.p + at[7] + row * c.out.row;
    float sum = 0;
    for (int x = t * kChunk<T>; x < c.s.value_width; x += 4 * kChunk<T>) {
      const auto a = cuda::load_pack<kChunk<T>>(g + x), b = cuda::load_pack<kChunk<T>>(out + x);
#pragma unroll
      for (int e = 0; e < kChunk<T>; ++e)
        sum = mu::fma_fast(static_cast<float>(a.at[e]), static_cast<float>(b.at[e]), sum);
    }
    return sum;
  }
};

}  // namespace troupe::ops::on_cuda
