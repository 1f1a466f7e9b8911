// Loops over strided tensors: dimensions that lie together are merged, and the innermost runs vectorized.
#pragma once
#include <array>

#include "ops/cpu/simd.h"
#include "ops/op.h"

namespace troupe::ops::cpu {

/// Strides of t as if expanded to `shape` (0 where it repeats).
inline Shape broadcast_strides(const Tensor& t, const Shape& shape) {
  Shape s = Shape::filled(shape.rank(), 0);
  const int shift = shape.rank() - t.dim();
  for (int i = 0; i < t.dim(); ++i)
    if (t.shape()[i] != 1) s[i + shift] = t.strides()[i];
  return s;
}

/// Visits N operands of one shape together: f(offsets, count, steps) for every innermost run, in row-major
/// order.
template <size_t N, class F>
void for_each_run(const Shape& shape, const std::array<Shape, N>& strides, F&& f) {
  int64_t size[kMaxDims], step[kMaxDims][N];
  int rank = 0;
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == 0) return;
    if (shape[d] == 1) continue;
    bool merges = rank > 0;
    for (size_t k = 0; k < N && merges; ++k) merges = step[rank - 1][k] == strides[k][d] * shape[d];
    if (merges)
      size[rank - 1] *= shape[d];
    else
      size[rank++] = shape[d];
    for (size_t k = 0; k < N; ++k) step[rank - 1][k] = strides[k][d];
  }
  std::array<int64_t, N> at{}, inner{};
  if (rank == 0) return f(at, int64_t{1}, inner);
  for (size_t k = 0; k < N; ++k) inner[k] = step[rank - 1][k];
  int64_t index[kMaxDims] = {};
  for (;;) {
    f(at, size[rank - 1], inner);
    int d = rank - 2;
    for (; d >= 0; --d) {
      for (size_t k = 0; k < N; ++k) at[k] += step[d][k];
      if (++index[d] < size[d]) break;
      for (size_t k = 0; k < N; ++k) at[k] -= step[d][k] * size[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

/// out[i] = f(x[i]).
template <class T, class R, class F>
void map1(const Tensor& x, const Tensor& out, F f) {
  const T* in = x.data<T>();
  R* to = out.data<R>();
  for_each_run<2>(out.shape(), {out.strides(), x.strides()},
                  [&](const auto& at, int64_t n, const auto& step) {
                    const T* __restrict a = in + at[1];
                    R* __restrict o = to + at[0];
                    const int64_t so = step[0], sa = step[1];
                    if (so == 1 && sa == 1)
                      vectorized([=]() __attribute__((always_inline)) {
                        for (int64_t i = 0; i < n; ++i) o[i] = f(a[i]);
                      });
                    else
                      for (int64_t i = 0; i < n; ++i) o[i * so] = f(a[i * sa]);
                  });
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
      for (int64_t i = 0; i < n; ++i) o[i * so] = f(a[i * sa], b[i * sb]);
  };
  if (x.is_contiguous() && y.is_contiguous() && x.shape() == shape && y.shape() == shape) {
    if (const int64_t n = shape.numel()) body(std::array<int64_t, 3>{}, n, std::array<int64_t, 3>{1, 1, 1});
    return;
  }
  for_each_run<3>(shape, {out.strides(), broadcast_strides(x, shape), broadcast_strides(y, shape)}, body);
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

/// A shape as [outer, size, inner] around one dimension.
struct Around {
  int64_t outer = 1, size = 1, inner = 1;
};
inline Around around(const Shape& shape, int dim) {
  Around a;
  for (int i = 0; i < dim; ++i) a.outer *= shape[i];
  if (dim < shape.rank()) a.size = shape[dim];
  for (int i = dim + 1; i < shape.rank(); ++i) a.inner *= shape[i];
  return a;
}

}  // namespace troupe::ops::cpu
