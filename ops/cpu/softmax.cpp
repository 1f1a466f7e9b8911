// Kernels of ops/softmax.h.
#include <algorithm>
#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/cpu/loops.h"
#include "ops/cpu/math.h"
#include "ops/cpu/rows.h"

namespace troupe::ops::cpu {
namespace {

constexpr double kElementNs = 1;
constexpr int64_t kColumns = 16;  // taken out together where a row does not lie together

// Runs f(in..., out, n) on every row along the attribute `dim`, inside vectorized(). Rows of a dimension that
// is not the last are copied out and back.
template <class T, size_t N, class F>
void for_each_row(const Call& c, const Tensor& out, F f) {
  const Shape& shape = out.shape();
  const Around a = around(shape, shape.axis(c.attrs.integer("dim"), c.name()));
  std::array<Tensor, N> in;
  std::array<const T*, N> from;
  for (size_t k = 0; k < N; ++k) {
    in[k] = c.in[k].contiguous_data();
    from[k] = in[k].template data<T>();
  }
  const int64_t n = a.size;
  if (n == 0) return;
  T* to = out.data<T>();
  if (a.inner == 1) {
    const int64_t piece = std::max<int64_t>(1, kGrain / n);  // rows
    parallel_for((a.outer + piece - 1) / piece, kElementNs * static_cast<double>(piece * n), [=](int64_t p) {
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t o = p * piece; o < std::min(a.outer, (p + 1) * piece); ++o) {
          std::array<const T*, N> rows;
          for (size_t k = 0; k < N; ++k) rows[k] = from[k] + o * n;
          f(rows, to + o * n, n);
        }
      });
    });
    return;
  }
  const int64_t per_row = (a.inner + kColumns - 1) / kColumns;
  parallel_for(a.outer * per_row, kElementNs * static_cast<double>(kColumns * n), [&](int64_t p) {
    const int64_t j = p % per_row * kColumns, columns = std::min(kColumns, a.inner - j);
    const int64_t first = p / per_row * n * a.inner + j;
    const Tensor memory = Tensor::empty({static_cast<int64_t>(N + 1) * kColumns * n}, out.dtype());
    T* const buffer = memory.data<T>();
    for (size_t k = 0; k < N; ++k)
      for (int64_t i = 0; i < n; ++i)
        for (int64_t q = 0; q < columns; ++q)
          buffer[(static_cast<int64_t>(k) * kColumns + q) * n + i] = from[k][first + i * a.inner + q];
    T* const results = buffer + static_cast<int64_t>(N) * kColumns * n;
    vectorized([=]() __attribute__((always_inline)) {
      for (int64_t q = 0; q < columns; ++q) {
        std::array<const T*, N> rows;
        for (size_t k = 0; k < N; ++k) rows[k] = buffer + (static_cast<int64_t>(k) * kColumns + q) * n;
        f(rows, results + q * n, n);
      }
    });
    for (int64_t i = 0; i < n; ++i)
      for (int64_t q = 0; q < columns; ++q) to[first + i * a.inner + q] = results[q * n + i];
  });
}

// exp(x - largest x); the sum is returned, the largest in `top`.
template <class T>
[[gnu::always_inline]] inline T exponentials(const T* x, T* to, int64_t n, T& top) {
  const T high = top = largest(x, n);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = decay(x[i] - high);
  RowSums<T> sums;
  sums.run(
      n, [to](auto& a, auto&, int64_t i)
             __attribute__((always_inline)) { a += at<std::remove_reference_t<decltype(a)>>(to, i); });
  return sums.first;
}

}  // namespace

void softmax(const Call& c, Tensors& out) {
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_row<T, 1>(
        c, out[0], [](const auto& rows, T* to, int64_t n) __attribute__((always_inline)) {
          T top;
          const T scale = 1 / exponentials(rows[0], to, n, top);
          for (int64_t i = 0; i < n; ++i) to[i] *= scale;
        });
  });
}

void log_softmax(const Call& c, Tensors& out) {
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_row<T, 1>(
        c, out[0], [](const auto& rows, T* to, int64_t n) __attribute__((always_inline)) {
          T top;
          const T* x = rows[0];
          const T log_total = std::log(exponentials(x, to, n, top));
#pragma GCC ivdep
          for (int64_t i = 0; i < n; ++i) to[i] = (x[i] - top) - log_total;
        });
  });
}

void softmax_grad(const Call& c, Tensors& out) {
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_row<T, 2>(
        c, out[0], [](const auto& rows, T* to, int64_t n) __attribute__((always_inline)) {
          const T *g = rows[0], *y = rows[1];
          RowSums<T> sums;
          sums.run(
              n, [=](auto& a, auto&, int64_t i) __attribute__((always_inline)) {
                using V = std::remove_reference_t<decltype(a)>;
                a += at<V>(g, i) * at<V>(y, i);
              });
#pragma GCC ivdep
          for (int64_t i = 0; i < n; ++i) to[i] = y[i] * (g[i] - sums.first);
        });
  });
}

void log_softmax_grad(const Call& c, Tensors& out) {
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_row<T, 2>(
        c, out[0], [](const auto& rows, T* to, int64_t n) __attribute__((always_inline)) {
          const T *g = rows[0], *y = rows[1];
          RowSums<T> sums;
          sums.run(
              n, [g](auto& a, auto&, int64_t i)
                     __attribute__((always_inline)) { a += at<std::remove_reference_t<decltype(a)>>(g, i); });
#pragma GCC ivdep
          for (int64_t i = 0; i < n; ++i) to[i] = g[i] - decay(y[i]) * sums.first;
        });
  });
}

}  // namespace troupe::ops::cpu
