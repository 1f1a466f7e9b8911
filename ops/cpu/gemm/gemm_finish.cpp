// What is done to rows of a product while they are in cache: bias and activation; and the sums of A's rows.
#include <algorithm>
#include <vector>

#include "ops/cpu/gemm/gemm.h"
#include "ops/cpu/loops/math.h"
#include "ops/cpu/loops/parallel_for.h"
#include "ops/cpu/loops/simd.h"

namespace troupe::ops::on_cpu {
namespace {

// A part that stays in the first-level cache from one step to the next.
template <class T>
void finish_band(int64_t m, int64_t n, T* c, int64_t ldc, const Finish<T>& finish) {
  const T* bias = finish.bias;
  T* slope = finish.slope;
  const auto each_row = [=](auto f) __attribute__((always_inline)) {
    vectorized([=]() __attribute__((always_inline)) {
      for (int64_t i = 0; i < m; ++i) f(i * ldc);
    });
  };
  if (bias)
    each_row([=](int64_t at) __attribute__((always_inline)) {
      TROUPE_INDEPENDENT
      for (int64_t j = 0; j < n; ++j) c[at + j] += bias[j];
    });
  if (finish.activation == Activation::relu)
    each_row([=](int64_t at) __attribute__((always_inline)) {
      TROUPE_INDEPENDENT
      for (int64_t j = 0; j < n; ++j) c[at + j] = c[at + j] < 0 ? T{0} : c[at + j];
    });
  if (finish.activation == Activation::gelu && slope)
    each_row([=](int64_t at) __attribute__((always_inline)) {
      TROUPE_INDEPENDENT
      for (int64_t j = 0; j < n; ++j) {
        const T x = c[at + j];
        const Normal<T> p = normal(x);
        c[at + j] = x * p.below;
        slope[at + j] = p.below + x * p.density;
      }
    });
  if (finish.activation == Activation::gelu && !slope)
    each_row([=](int64_t at) __attribute__((always_inline)) {
      TROUPE_INDEPENDENT
      for (int64_t j = 0; j < n; ++j) c[at + j] *= normal(c[at + j]).below;
    });
  if (const T* residual = finish.residual)
    each_row([=](int64_t at) __attribute__((always_inline)) {
      TROUPE_INDEPENDENT
      for (int64_t j = 0; j < n; ++j) c[at + j] += residual[at + j];
    });
}

template <class T>
void finish_all(int64_t m, int64_t n, T* c, int64_t ldc, const Finish<T>& finish) {
  if (!finish.bias && finish.activation == Activation::none && !finish.residual) return;
  constexpr int64_t kBytes = 16 << 10;
  const int64_t band = std::max<int64_t>(1, kBytes / (n * static_cast<int64_t>(sizeof(T))));
  for (int64_t i = 0; i < m; i += band)
    finish_band(std::min(band, m - i), n, c + i * ldc, ldc, finish.part(i * ldc, 0));
}

template <class T>
void sum_all_rows(int64_t m, int64_t k, const Matrix<T>& a, T* sums) {
  constexpr int64_t kPiece = 256;
  const int64_t row = a.transposed ? 1 : a.ld, step = a.transposed ? a.ld : 1;
  parallel_for((m + kPiece - 1) / kPiece, 0.3 * static_cast<double>(kPiece * k), [&](int64_t piece) {
    const int64_t first = piece * kPiece, count = std::min(kPiece, m - first);
    double totals[kPiece] = {};
    const T* x = a.p + first * row;
    vectorized([ =, to = &totals[0] ]() __attribute__((always_inline)) {
      for (int64_t l = 0; l < k; ++l) {
        TROUPE_INDEPENDENT
        for (int64_t i = 0; i < count; ++i) to[i] += static_cast<double>(x[i * row + l * step]);
      }
    });
    for (int64_t i = 0; i < count; ++i) sums[first + i] = static_cast<T>(totals[i]);
  });
}

}  // namespace

void row_sums(int64_t m, int64_t k, const Matrix<float>& a, float* sums) { sum_all_rows(m, k, a, sums); }
void row_sums(int64_t m, int64_t k, const Matrix<double>& a, double* sums) { sum_all_rows(m, k, a, sums); }

void finish_rows(int64_t m, int64_t n, float* c, int64_t ldc, const Finish<float>& finish) {
  finish_all(m, n, c, ldc, finish);
}
void finish_rows(int64_t m, int64_t n, double* c, int64_t ldc, const Finish<double>& finish) {
  finish_all(m, n, c, ldc, finish);
}

}  // namespace troupe::ops::on_cpu
