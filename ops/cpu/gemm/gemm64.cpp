// float64 products: oneDNN has none. In AVX2 they are made of tiles as float32's are. Otherwise blocks of A
// and B are packed into panels that stay in cache, and an 8 x 8 tile of C stays in registers (Goto, van de
// Geijn 2008).
#include <algorithm>
#include <vector>

#include "ops/cpu/gemm/gemm.h"
#include "ops/cpu/gemm/gemm_kernels.h"
#include "ops/cpu/loops/simd.h"

namespace troupe::ops::on_cpu {
namespace {

constexpr int64_t kTile = 8, kBlockM = 64, kBlockN = 512, kBlockK = 256;
constexpr int64_t kSmall = 16 * 16 * 16;  // below, packing costs more than it saves

typedef double Vector __attribute__((vector_size(64), aligned(8)));

double at(const Matrix<double>& x, int64_t i, int64_t j) {
  return x.transposed ? x.p[j * x.ld + i] : x.p[i * x.ld + j];
}

void small(int64_t m, int64_t n, int64_t k, const Matrix<double>& a, const Matrix<double>& b, double beta,
           double* c, int64_t ldc) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double total = 0;
      for (int64_t l = 0; l < k; ++l) total += at(a, i, l) * at(b, l, j);
      c[i * ldc + j] = beta == 0 ? total : c[i * ldc + j] + total;
    }
}

// Panels of 8 rows of A: element (i, l) of a panel at [l * 8 + i], zero beyond the edge.
void pack_a(const Matrix<double>& a, int64_t i0, int64_t m, int64_t l0, int64_t k, double* out) {
  for (int64_t i = 0; i < m; i += kTile)
    for (int64_t l = 0; l < k; ++l)
      for (int64_t r = 0; r < kTile; ++r) *out++ = i + r < m ? at(a, i0 + i + r, l0 + l) : 0;
}

void pack_b(const Matrix<double>& b, int64_t l0, int64_t k, int64_t j0, int64_t n, double* out) {
  for (int64_t j = 0; j < n; j += kTile)
    for (int64_t l = 0; l < k; ++l)
      for (int64_t r = 0; r < kTile; ++r) *out++ = j + r < n ? at(b, l0 + l, j0 + j + r) : 0;
}

// tile = A panel x B panel.
void multiply(int64_t k, const double* a, const double* b, double* tile) {
  vectorized([=]() __attribute__((always_inline)) {
    Vector sums[kTile] = {};
    for (int64_t l = 0; l < k; ++l) {
      const Vector row = *reinterpret_cast<const Vector*>(b + l * kTile);
      const double* column = a + l * kTile;
      TROUPE_UNROLL(8)
      for (int r = 0; r < kTile; ++r) sums[r] += column[r] * row;
    }
    TROUPE_UNROLL(8)
    for (int r = 0; r < kTile; ++r) *reinterpret_cast<Vector*>(tile + r * kTile) = sums[r];
  });
}

void blocked(int64_t m, int64_t n, int64_t k, const Matrix<double>& a, const Matrix<double>& b, double beta,
             double* c, int64_t ldc) {
  const auto round_up = [](int64_t x) { return (x + kTile - 1) / kTile * kTile; };
  std::vector<double> packed_a(static_cast<size_t>(round_up(std::min(m, kBlockM)) * std::min(k, kBlockK)));
  std::vector<double> packed_b(static_cast<size_t>(round_up(std::min(n, kBlockN)) * std::min(k, kBlockK)));
  for (int64_t i = 0; beta == 0 && i < m; ++i) std::fill_n(c + i * ldc, n, 0.0);
  double tile[kTile * kTile];
  for (int64_t j0 = 0; j0 < n; j0 += kBlockN)
    for (int64_t l0 = 0; l0 < k; l0 += kBlockK) {
      const int64_t nb = std::min(kBlockN, n - j0), kb = std::min(kBlockK, k - l0);
      pack_b(b, l0, kb, j0, nb, packed_b.data());
      for (int64_t i0 = 0; i0 < m; i0 += kBlockM) {
        const int64_t mb = std::min(kBlockM, m - i0);
        pack_a(a, i0, mb, l0, kb, packed_a.data());
        for (int64_t j = 0; j < nb; j += kTile)
          for (int64_t i = 0; i < mb; i += kTile) {
            multiply(kb, packed_a.data() + i * kb, packed_b.data() + j * kb, tile);
            const int64_t rows = std::min(kTile, mb - i), columns = std::min(kTile, nb - j);
            for (int64_t r = 0; r < rows; ++r)
              for (int64_t q = 0; q < columns; ++q) c[(i0 + i + r) * ldc + j0 + j + q] += tile[r * kTile + q];
          }
      }
    }
}

}  // namespace

void gemm(int64_t m, int64_t n, int64_t k, const Matrix<double>& a, const Matrix<double>& b, double beta,
          double* c, const Finish<double>& finish, double* sums) {
#if defined(__x86_64__)
  if (has_gemm_tiles() && level() == CpuLevel::avx2) return gemm_avx2(m, n, k, a, b, beta, c, finish, sums);
#endif
  if (sums) row_sums(m, k, a, sums);
  const int64_t ldc = finish.ldc ? finish.ldc : n;
  if (m * n * k <= kSmall)
    small(m, n, k, a, b, beta, c, ldc);
  else
    blocked(m, n, k, a, b, beta, c, ldc);
  finish_rows(m, n, c, ldc, finish);
}

}  // namespace troupe::ops::on_cpu
