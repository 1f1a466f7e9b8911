// Loops over strided tensors: dimensions that lie together are merged, and the innermost runs vectorized.
#pragma once
#include <algorithm>
#include <array>

#include "core/memory/streaming_copy.h"
#include "ops/cpu/loops/parallel_for.h"
#include "ops/cpu/loops/simd.h"
#include "ops/dispatch/geometry.h"
#include "ops/dispatch/op.h"

namespace troupe::ops::on_cpu {

/// N operands of one shape, walked together in row-major order. Dimensions that lie together are merged.
template <size_t N>
class Runs {
 public:
  Runs(const Shape& shape, const std::array<Shape, N>& strides) {
    for (int d = 0; d < shape.rank(); ++d) {
      numel_ *= shape[d];
      if (shape[d] == 1) continue;
      bool merges = rank_ > 0;
      for (size_t k = 0; k < N && merges; ++k) merges = step_[rank_ - 1][k] == strides[k][d] * shape[d];
      if (merges)
        size_[rank_ - 1] *= shape[d];
      else
        size_[rank_++] = shape[d];
      for (size_t k = 0; k < N; ++k) step_[rank_ - 1][k] = strides[k][d];
    }
    if (rank_ == 0) size_[rank_++] = numel_;  // steps of 0
  }
  int64_t numel() const { return numel_; }

  /// f(offsets, count, steps) for every innermost run, or part of one, of the elements from `begin` to `end`.
  template <class F>
  void visit(int64_t begin, int64_t end, F&& f) const {
    if (begin >= end) return;
    const int last = rank_ - 1;
    int64_t index[kMaxDims];
    std::array<int64_t, N> at{};
    for (int64_t d = last, rest = begin; d >= 0; rest /= size_[d--]) {
      index[d] = rest % size_[d];
      for (size_t k = 0; k < N; ++k) at[k] += step_[d][k] * index[d];
    }
    for (int64_t left = end - begin;;) {
      const int64_t count = std::min(left, size_[last] - index[last]);
      f(at, count, step_[last]);
      left -= count;
      if (left == 0) return;
      for (size_t k = 0; k < N; ++k) at[k] -= step_[last][k] * index[last];
      index[last] = 0;
      for (int d = last - 1; d >= 0; --d) {
        for (size_t k = 0; k < N; ++k) at[k] += step_[d][k];
        if (++index[d] < size_[d]) break;
        for (size_t k = 0; k < N; ++k) at[k] -= step_[d][k] * size_[d];
        index[d] = 0;
      }
    }
  }

 private:
  int64_t numel_ = 1;
  int rank_ = 0;
  int64_t size_[kMaxDims + 1] = {};
  std::array<int64_t, N> step_[kMaxDims + 1] = {};
};

/// f(offsets, count, steps) for every innermost run, in row-major order, on this thread.
template <size_t N, class F>
void for_each_run(const Shape& shape, const std::array<Shape, N>& strides, F&& f) {
  const Runs<N> runs(shape, strides);
  runs.visit(0, runs.numel(), f);
}

constexpr int64_t kGrain = 1 << 15;  ///< elements of a piece of a large tensor

/// f(begin, end) for pieces of [0, n), on several threads if n is large. `element_ns`: see parallel_for.
template <class F>
void parallel_ranges(int64_t n, const F& f, double element_ns = 0.2) {
  if (n <= 2 * kGrain) return n > 0 ? f(int64_t{0}, n) : void();
  parallel_for((n + kGrain - 1) / kGrain, kGrain * element_ns,
               [&](int64_t i) { f(i * kGrain, std::min(n, (i + 1) * kGrain)); });
}

/// As for_each_run, with the pieces of large tensors on several threads, in any order.
template <size_t N, class F>
void parallel_runs(const Shape& shape, const std::array<Shape, N>& strides, const F& f) {
  const Runs<N> runs(shape, strides);
  parallel_ranges(runs.numel(), [&](int64_t begin, int64_t end) { runs.visit(begin, end, f); });
}

/// f(to, begin, end) writes elements `begin` to `end` of `out`, of n in all, to `to`: there or, of a large
/// result, in a buffer from which they go past the caches.
template <class T, class F>
void write_dense(T* out, int64_t n, const F& f) {
  const bool large =
      static_cast<size_t>(n) * sizeof(T) >= kLargerThanCaches && reinterpret_cast<uintptr_t>(out) % 16 == 0;
  parallel_ranges(n, [&](int64_t begin, int64_t end) {
    if (!large) return f(out + begin, begin, end);
    constexpr int64_t kChunk = 4096 / sizeof(T);
    alignas(64) T buffer[kChunk];
    for (int64_t i = begin; i < end; i += kChunk) {
      const int64_t to = std::min(end, i + kChunk);
      f(buffer, i, to);
      copy_past_caches(reinterpret_cast<std::byte*>(out + i), reinterpret_cast<const std::byte*>(buffer),
                       static_cast<size_t>(to - i) * sizeof(T));
    }
  });
}

/// out[i] = f(x[i]).
template <class T, class R, class F>
void map1(const Tensor& x, const Tensor& out, F f) {
  const T* in = x.data<T>();
  R* to = out.data<R>();
  const auto body = [&](const auto& at, int64_t n, const auto& step) {
    const T* __restrict a = in + at[1];
    R* __restrict o = to + at[0];
    const int64_t so = step[0], sa = step[1];
    if (so == 1 && sa == 1)
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) o[i] = f(a[i]);
      });
    else
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) o[i * so] = f(a[i * sa]);
      });
  };
  if (x.is_contiguous() && out.is_contiguous())
    return write_dense(to, out.numel(), [&](R* o, int64_t begin, int64_t end) {
      vectorized([ =, a = in + begin, n = end - begin ]() __attribute__((always_inline)) {
        TROUPE_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) o[i] = f(a[i]);
      });
    });
  parallel_runs<2>(out.shape(), {out.strides(), x.strides()}, body);
}

/// out[i] = f(x[i], y[i]), both broadcast to out.
template <class T, class R, class F>
void map2(const Tensor& x, const Tensor& y, const Tensor& out, F f) {
  const T *px = x.data<T>(), *py = y.data<T>();
  R* to = out.data<R>();
  const Shape& shape = out.shape();
  const auto body = [&](const auto& at, int64_t n, const auto& step) {
    const T *a = px + at[1], *b = py + at[2];
    R* __restrict o = to + at[0];
    const int64_t so = step[0], sa = step[1], sb = step[2];
    if (so == 1 && sa == 1 && sb == 1)
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) o[i] = f(a[i], b[i]);
      });
    else if (so == 1 && sa == 1 && sb == 0)
      vectorized([ =, v = *b ]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) o[i] = f(a[i], v);
      });
    else if (so == 1 && sa == 0 && sb == 1)
      vectorized([ =, v = *a ]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) o[i] = f(v, b[i]);
      });
    else
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) o[i * so] = f(a[i * sa], b[i * sb]);
      });
  };
  if (x.is_contiguous() && y.is_contiguous() && x.shape() == shape && y.shape() == shape) {
    return write_dense(to, shape.numel(), [&](R* o, int64_t begin, int64_t end) {
      vectorized([ =, a = px + begin, b = py + begin, n = end - begin ]() __attribute__((always_inline)) {
        TROUPE_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) o[i] = f(a[i], b[i]);
      });
    });
  }
  parallel_runs<3>(shape, {out.strides(), broadcast_strides(x, shape), broadcast_strides(y, shape)}, body);
}

/// Calls f with a float or a double.
template <class F>
void visit_floating(DType t, F&& f) {
  if (t == float64)
    f(double{});
  else
    f(float{});
}

/// Calls f with a float, a double or an int64_t.
template <class F>
void visit_numeric(DType t, F&& f) {
  if (t == int64)
    f(int64_t{});
  else
    visit_floating(t, f);
}

}  // namespace troupe::ops::on_cpu
