// What is done to rows of a product while they are in cache: bias and activation.
#include "ops/cpu/gemm.h"
#include "ops/cpu/math.h"
#include "ops/cpu/simd.h"

namespace troupe::ops::cpu {
namespace {

template <class T>
void finish_all(int64_t m, int64_t n, T* c, int64_t ldc, const Finish<T>& finish) {
  const T* bias = finish.bias;
  T* slope = finish.slope;
  const auto each_row = [=](auto f) __attribute__((always_inline)) {
    vectorized([=]() __attribute__((always_inline)) {
      for (int64_t i = 0; i < m; ++i) f(i * ldc);
    });
  };
  if (bias)
    each_row([=](int64_t at) __attribute__((always_inline)) {
#pragma GCC ivdep
      for (int64_t j = 0; j < n; ++j) c[at + j] += bias[j];
    });
  if (finish.activation == Activation::relu)
    each_row([=](int64_t at) __attribute__((always_inline)) {
#pragma GCC ivdep
      for (int64_t j = 0; j < n; ++j) c[at + j] = c[at + j] < 0 ? T{0} : c[at + j];
    });
  if (finish.activation == Activation::gelu && slope)
    each_row([=](int64_t at) __attribute__((always_inline)) {
#pragma GCC ivdep
      for (int64_t j = 0; j < n; ++j) {
        const T x = c[at + j];
        const Normal<T> p = normal(x);
        c[at + j] = x * p.below;
        slope[at + j] = p.below + x * p.density;
      }
    });
  if (finish.activation == Activation::gelu && !slope)
    each_row([=](int64_t at) __attribute__((always_inline)) {
#pragma GCC ivdep
      for (int64_t j = 0; j < n; ++j) c[at + j] *= normal(c[at + j]).below;
    });
}

}  // namespace

void finish_rows(int64_t m, int64_t n, float* c, int64_t ldc, const Finish<float>& finish) {
  finish_all(m, n, c, ldc, finish);
}
void finish_rows(int64_t m, int64_t n, double* c, int64_t ldc, const Finish<double>& finish) {
  finish_all(m, n, c, ldc, finish);
}

}  // namespace troupe::ops::cpu
