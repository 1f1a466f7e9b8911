// Loops over strided tensors: dimensions that lie together are merged, and the innermost runs vectorized.
#pragma once
#include <algorithm>
#include <array>

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
  /// Elements between two neighbours of the innermost runs.
  const std::array<int64_t, N>& steps() const { return step_[rank_ - 1]; }

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

/// A loop without the types of its elements and of its function, which is compiled for those alone; how its
/// operands lie in memory, and who runs which part, is the business of run(), which is compiled once.
struct UnaryLoop {
  /// out[i] = f(x[i]) for n neighbours.
  void (*neighbours)(const void* f, void* out, const void* x, int64_t n);
  const void* f;
  void* out;
  const void* x;
};
struct BinaryLoop {
  enum class One { none, x, y };  ///< an operand that is one element for all
  /// out[i] = f(x[i], y[i]) for n neighbours.
  void (*neighbours)(const void* f, void* out, const void* x, const void* y, int64_t n, One one);
  const void* f;
  void* out;
  const void *x, *y;
};
struct UpdateLoop {
  /// a[i] = f(a[i], b[i], c[i]) for n neighbours.
  void (*neighbours)(const void* f, void* a, const void* b, const void* c, int64_t n);
  const void* f;
  void* a;
  const void *b, *c;
};
void run(const UnaryLoop& loop, const Tensor& x, const Tensor& out);
void run(const BinaryLoop& loop, const Tensor& x, const Tensor& y, const Tensor& out);
void run(const UpdateLoop& loop, const Tensor& a, const Tensor& b, const Tensor& c);

struct Widest {
  template <class F>
  static void run(const F& f) {
    vectorized(f);
  }
};

/// out[i] = f(x[i]).
template <class T, class R, class F>
void map1(const Tensor& x, const Tensor& out, F f) {
  const auto neighbours = [](const void* function, void* to, const void* from, int64_t n) {
    vectorized([
      f = *static_cast<const F*>(function), o = static_cast<R*>(to), a = static_cast<const T*>(from),
      n
    ]() __attribute__((always_inline)) {
      TROUPE_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) o[i] = f(a[i]);
    });
  };
  run(UnaryLoop{neighbours, &f, out.data<R>(), x.data<T>()}, x, out);
}

/// out[i] = f(x[i], y[i]), both broadcast to out. Level::run runs a loop, as vectorized() does.
template <class T, class R, class Level = Widest, class F>
void map2(const Tensor& x, const Tensor& y, const Tensor& out, F f) {
  const auto neighbours = [](const void* function, void* to, const void* left, const void* right, int64_t n,
                             BinaryLoop::One one) {
    const F& call = *static_cast<const F*>(function);
    R* o = static_cast<R*>(to);
    const T *a = static_cast<const T*>(left), *b = static_cast<const T*>(right);
    if (one == BinaryLoop::One::none)
      Level::run([ =, f = call ]() __attribute__((always_inline)) {
        TROUPE_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) o[i] = f(a[i], b[i]);
      });
    else if (one == BinaryLoop::One::y)
      vectorized([ =, f = call, v = *b ]() __attribute__((always_inline)) {
        TROUPE_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) o[i] = f(a[i], v);
      });
    else
      vectorized([ =, f = call, v = *a ]() __attribute__((always_inline)) {
        TROUPE_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) o[i] = f(v, b[i]);
      });
  };
  run(BinaryLoop{neighbours, &f, out.data<R>(), x.data<T>(), y.data<T>()}, x, y, out);
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
