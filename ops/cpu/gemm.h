// Products of two matrices in memory.
#pragma once
#include <cstdint>

namespace troupe::ops::cpu {

/// A matrix in memory: element (i, j) at p[i * ld + j], or p[j * ld + i] if transposed.
template <class T>
struct Matrix {
  const T* p = nullptr;
  int64_t ld = 1;
  bool transposed = false;
};

/// C = A B + beta C, with C [m, n] row-major and dense, A [m, k], B [k, n], all sizes > 0; beta 0 or 1.
/// The same arguments give the same bits on whichever thread.
void gemm(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
          float* c);
void gemm(int64_t m, int64_t n, int64_t k, const Matrix<double>& a, const Matrix<double>& b, double beta,
          double* c);

}  // namespace troupe::ops::cpu
