// Kernels of ops/softmax.h.
#include <cmath>
#include <limits>
#include <vector>

#include "ops/cpu/kernels.h"
#include "ops/cpu/loops.h"
#include "ops/cpu/math.h"

namespace troupe::ops::cpu {
namespace {

// Runs f(in..., out, n) on every contiguous row along the attribute `dim`; a dimension that is not the last
// is transposed into place and back.
template <class T, size_t N, class F>
void for_each_row(const Call& c, const Tensor& out, F f) {
  const Shape& shape = out.shape();
  const Around a = around(shape, shape.axis(c.attrs.integer("dim"), c.name()));
  std::array<Tensor, N> in;
  for (size_t k = 0; k < N; ++k) in[k] = c.in[k].contiguous_data();
  const int64_t n = a.size;
  if (n == 0) return;
  T* to = out.data<T>();
  if (a.inner == 1) {
    for (int64_t o = 0; o < a.outer; ++o) {
      std::array<const T*, N> rows;
      for (size_t k = 0; k < N; ++k) rows[k] = in[k].template data<T>() + o * n;
      f(rows, to + o * n, n);
    }
    return;
  }
  std::vector<T> buffer(static_cast<size_t>(n) * (N + 1));
  for (int64_t o = 0; o < a.outer; ++o)
    for (int64_t j = 0; j < a.inner; ++j) {
      const int64_t at = o * n * a.inner + j;
      std::array<const T*, N> rows;
      for (size_t k = 0; k < N; ++k) {
        T* row = buffer.data() + static_cast<int64_t>(k) * n;
        for (int64_t i = 0; i < n; ++i) row[i] = in[k].template data<T>()[at + i * a.inner];
        rows[k] = row;
      }
      T* result = buffer.data() + static_cast<int64_t>(N) * n;
      f(rows, result, n);
      for (int64_t i = 0; i < n; ++i) to[at + i * a.inner] = result[i];
    }
}

constexpr int kLanes = 16;

template <class T>
T larger(T a, T v) {
  const T best = v > a ? v : a;
  return v != v ? v : best;
}

template <class T>
T row_max(const T* x, int64_t n) {
  T lanes[kLanes];
  vectorized([ x, n, &lanes ]() __attribute__((always_inline)) {
    T local[kLanes];
    for (T& lane : local) lane = -std::numeric_limits<T>::infinity();
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int l = 0; l < kLanes; ++l) local[l] = larger(local[l], x[i + l]);
    for (int l = 0; i < n; ++i, ++l) local[l] = larger(local[l], x[i]);
    for (int l = 0; l < kLanes; ++l) lanes[l] = local[l];
  });
  T top = lanes[0];
  for (const T lane : lanes) top = larger(top, lane);
  return top;
}

// In 16 running sums, in double.
template <class T, class F>
double row_sum(int64_t n, F term) {
  double lanes[kLanes];
  vectorized([ n, term, &lanes ]() __attribute__((always_inline)) {
    double local[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int l = 0; l < kLanes; ++l) local[l] += static_cast<double>(term(i + l));
    for (int l = 0; i < n; ++i, ++l) local[l] += static_cast<double>(term(i));
    for (int l = 0; l < kLanes; ++l) lanes[l] = local[l];
  });
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

}  // namespace

void softmax(const Call& c, Tensors& out) {
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_row<T, 1>(c, out[0], [](const auto& rows, T* to, int64_t n) {
      const T* x = rows[0];
      const T top = row_max(x, n);
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) to[i] = fast_exp(x[i] - top);
      });
      const T scale = static_cast<T>(1 / row_sum<T>(n, [to](int64_t i) { return to[i]; }));
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) to[i] *= scale;
      });
    });
  });
}

void log_softmax(const Call& c, Tensors& out) {
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_row<T, 1>(c, out[0], [](const auto& rows, T* to, int64_t n) {
      const T* x = rows[0];
      const T top = row_max(x, n);
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) to[i] = fast_exp(x[i] - top);
      });
      const T log_total = static_cast<T>(std::log(row_sum<T>(n, [to](int64_t i) { return to[i]; })));
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) to[i] = (x[i] - top) - log_total;
      });
    });
  });
}

void softmax_grad(const Call& c, Tensors& out) {
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_row<T, 2>(c, out[0], [](const auto& rows, T* to, int64_t n) {
      const T *g = rows[0], *y = rows[1];
      const T dot = static_cast<T>(row_sum<T>(n, [=](int64_t i) { return g[i] * y[i]; }));
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) to[i] = y[i] * (g[i] - dot);
      });
    });
  });
}

void log_softmax_grad(const Call& c, Tensors& out) {
  visit_floating(out[0].dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_each_row<T, 2>(c, out[0], [](const auto& rows, T* to, int64_t n) {
      const T *g = rows[0], *y = rows[1];
      const T total = static_cast<T>(row_sum<T>(n, [=](int64_t i) { return g[i]; }));
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) to[i] = g[i] - fast_exp(y[i]) * total;
      });
    });
  });
}

}  // namespace troupe::ops::cpu
