// Layer norm and rms norm of rows that fit the registers of a group of threads.
#pragma once
#include "ops/cuda/rows.cuh"

namespace troupe::ops::on_cuda {

/// Of a row in registers: as statistics() of norm.cu.
template <bool centered, class Part, class Values>
__device__ __forceinline__ void row_statistics(const Part& x, int n, float eps, Values& values, float& mean,
                                               float& scale) {
  mean = 0;
  if constexpr (centered) {
    float sum[1] = {0};
    Part::each(n, [&](int p, int e) { sum[0] += x.at[p][e]; });
    values.join(sum);
    mean = sum[0] / static_cast<float>(n);
  }
  float both[2] = {0, 0};  // of squares and of deviations
  Part::each(n, [&](int p, int e) {
    const float d = x.at[p][e] - mean;
    both[0] = matrix_unit::fma_fast(d, d, both[0]);
    both[1] += d;
  });
  values.join(both);
  if constexpr (centered) {
    const float lost = both[1] / static_cast<float>(n);
    mean += lost;
    both[0] -= both[1] * lost;
    if (both[0] < 0) both[0] = 0;
  }
  scale = 1 / std::sqrt(both[0] / static_cast<float>(n) + eps);
  if constexpr (centered)
    if (scale == 0) scale = std::numeric_limits<float>::quiet_NaN();
}

template <class T, int kPacks, int kGroup, bool centered>
struct NormRows {
  static constexpr int kAtOnce = kRowThreads / kGroup;
  T* out;
  const T *x, *weight, *bias;
  int64_t rows;
  int n;
  float eps;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, out, x, weight, bias);
  }
  __device__ __forceinline__ void operator()(int64_t block, float* shared) const {
    using Part = RowPart<T, kPacks, kGroup>;
    const int64_t row = block * kAtOnce + static_cast<int>(threadIdx.x) / kGroup;
    const bool there = row < rows;
    Part in, w, b;
    in.load(there ? x + row * n : nullptr, n);
    w.load(weight, n);
    b.load(bias, n);
    GroupValues<kGroup> values(shared);
    float mean, scale;
    row_statistics<centered>(in, n, eps, values, mean, scale);
    Part::each(n, [&](int p, int e) {
      const float y = (in.at[p][e] - mean) * scale * w.at[p][e];
      in.at[p][e] = bias ? y + b.at[p][e] : y;
    });
    if (there) in.store(out + row * n, n);
  }
};

/// The gradient of x, to which `added` comes where it is not null; and of weight and bias what each block's
/// rows give, row after row, `blocks` times kAtOnce apart.
template <class T, int kPacks, int kGroup, bool centered>
struct NormRowsBackward {
  static constexpr int kAtOnce = kRowThreads / kGroup;
  T* dx;
  float* terms;  // [blocks, 2, n]
  const T *g, *x, *weight, *added;
  int64_t rows, blocks;
  int n;
  float eps;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, dx, terms, g, x, weight, added);
  }
  __device__ __forceinline__ void operator()(int64_t block, float* shared) const {
    using Part = RowPart<T, kPacks, kGroup>;
    const int group = static_cast<int>(threadIdx.x) / kGroup;
    Part w, dw, db;
    w.load(weight, n);
    dw.clear(), db.clear();
    GroupValues<kGroup> values(shared);
    for (int64_t first = block * kAtOnce; first < rows; first += blocks * kAtOnce) {
      const int64_t row = first + group;
      const bool there = row < rows;
      Part in, gradient;
      in.load(there ? x + row * n : nullptr, n);
      gradient.load(there ? g + row * n : nullptr, n);
      float mean, scale;
      row_statistics<centered>(in, n, eps, values, mean, scale);
      float both[2] = {0, 0};
      Part::each(n, [&](int p, int e) {
        float &d = in.at[p][e], &slope = gradient.at[p][e];
        d = (d - mean) * scale;
        if (there) dw.at[p][e] = matrix_unit::fma_fast(slope, d, dw.at[p][e]), db.at[p][e] += slope;
        slope *= w.at[p][e];
        both[0] += slope;
        both[1] = matrix_unit::fma_fast(slope, d, both[1]);
      });
      values.join(both);
      const float k = 1 / static_cast<float>(n), shift = centered ? both[0] * k : 0.f, slope = both[1] * k;
      Part::each(n, [&](int p, int e) {
        in.at[p][e] = (gradient.at[p][e] - matrix_unit::fma_fast(in.at[p][e], slope, shift)) * scale;
      });
      if (there && added) {
        gradient.load(added + row * n, n);
        Part::each(n, [&](int p, int e) {
          in.at[p][e] = gradient.at[p][e] + static_cast<float>(static_cast<T>(in.at[p][e]));
        });
      }
      if (there) in.store(dx + row * n, n);
    }
    // The groups of a block one after the other, in shared memory; the last one writes.
    float* const to = terms + block * 2 * n;
    float* const sums = shared + GroupValues<kGroup>::kShared;
    for (int turn = 0; turn < kAtOnce; ++turn) {
      if (turn == group)
        Part::each(n, [&](int p, int e) {
          const int i = Part::column(p) + e;
          const float before_w = turn ? sums[i] : 0, before_b = turn ? sums[n + i] : 0;
          float* const into = turn == kAtOnce - 1 ? to : sums;
          into[i] = before_w + dw.at[p][e];
          into[n + i] = before_b + db.at[p][e];
        });
      __syncthreads();
    }
  }
};

/// Columns of the terms, 32 of them for each block, as eight sums that are joined in a fixed order.
template <class T>
struct NormTermSums {
  T *dw, *db;  // db: null if there is none
  const float* terms;
  int64_t blocks;
  int n;
  template <class F>
  void visit(F&& f) {
    visit_pointers(f, dw, db, terms);
  }
  __device__ void operator()(int64_t block) const {
    __shared__ double parts[8][32];
    const int lane = static_cast<int>(threadIdx.x) % 32, part = static_cast<int>(threadIdx.x) / 32;
    const int64_t column = block * 32 + lane;  // of weight and bias, one behind the other
    double sum = 0;
    for (int64_t b = part; b < blocks && column < 2 * n; b += 8)
      sum += static_cast<double>(terms[b * 2 * n + column]);
    parts[part][lane] = sum;
    __syncthreads();
    if (part == 0 && column < 2 * n) {
      for (int p = 1; p < 8; ++p) sum += parts[p][lane];
      if (column < n)
        dw[column] = static_cast<T>(static_cast<float>(sum));
      else if (db)
        db[column - n] = static_cast<T>(static_cast<float>(sum));
    }
    __syncthreads();
  }
};

}  // namespace troupe::ops::on_cuda
