// Products of two matrices in memory.
#pragma once
#include <cstdint>

namespace troupe::ops::on_cpu {

/// A matrix in memory: element (i, j) at p[i * ld + j], or p[j * ld + i] if transposed.
template <class T>
struct Matrix {
  const T* p = nullptr;
  int64_t ld = 1;
  bool transposed = false;
};

enum class Activation : uint8_t { none, relu, gelu };

/// What happens to a product before it leaves the cache: C[i, j] = activation(C[i, j] + bias[j]) +
/// residual[i, j].
template <class T>
struct Finish {
  const T* bias = nullptr;  ///< [n]; null: none
  Activation activation = Activation::none;
  T* slope = nullptr;           ///< as C: takes the derivative of gelu; null: not wanted
  const T* residual = nullptr;  ///< as C; null: none
  int64_t ldc = 0;              ///< distance of C's rows; 0: n

  /// That of the part of C that begins at element `at`, in column `column`.
  Finish part(int64_t at, int64_t column) const {
    return {bias ? bias + column : nullptr, activation, slope ? slope + at : nullptr,
            residual ? residual + at : nullptr, ldc};
  }
};

class PackedMatrix;

/// C = finish(A B + beta C), with C [m, n] row-major, A [m, k], B [k, n], all sizes > 0; beta 0
/// or 1. sums: null, or takes the sums of A's rows [m], which cost less here than by themselves. The same
/// arguments give the same bits on whichever thread, and on any number of them. kept: null, or keeps B packed
/// for the next product with it; the last bits may be others then.
void gemm(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
          float* c, const Finish<float>& finish = {}, float* sums = nullptr, PackedMatrix* kept = nullptr);
void gemm(int64_t m, int64_t n, int64_t k, const Matrix<double>& a, const Matrix<double>& b, double beta,
          double* c, const Finish<double>& finish = {}, double* sums = nullptr);

/// The sums of the rows of a [m, k], in double.
void row_sums(int64_t m, int64_t k, const Matrix<float>& a, float* sums);
void row_sums(int64_t m, int64_t k, const Matrix<double>& a, double* sums);

/// The finish of rows of C [m, n], ldc apart (as those of slope and residual), as a pass of its own.
void finish_rows(int64_t m, int64_t n, float* c, int64_t ldc, const Finish<float>& finish);
void finish_rows(int64_t m, int64_t n, double* c, int64_t ldc, const Finish<double>& finish);

/// Whether products of our own may run beside oneDNN's: unless TROUPE_TILES is 0; `invalid` if it is neither
/// 0 nor 1.
bool may_use_tiles();

/// Whether gemm_tiles() runs here: it needs AVX2, and may_use_tiles().
bool has_gemm_tiles();
/// gemm() in tiles of its own. The bits of an element do not depend on m and n.
void gemm_tiles(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
                float* c, const Finish<float>& finish, float* sums, PackedMatrix* kept = nullptr);

/// Whether gemm_amx() runs here: it needs the matrix unit, and may_use_tiles().
bool has_gemm_amx();
/// gemm() on the matrix unit, in three bfloat16 for each float32. Errors of sums are those of float32, but
/// what is below 2^-126 counts as 0: of each factor, and of each product, that much more may be lost where
/// there are factors above 2^-80 within the same 32 rows of A and columns of B (otherwise vectors do it). The
/// bits of an element do not depend on m and n unless a number is infinite, NaN, or near the ends of
/// float32's range.
void gemm_amx(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
              float* c, const Finish<float>& finish, float* sums, PackedMatrix* kept = nullptr);

}  // namespace troupe::ops::on_cpu
