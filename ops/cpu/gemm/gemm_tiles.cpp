// Products in tiles of our own: in which instruction set.
#include "ops/cpu/gemm/gemm_kernels.h"
#include "ops/cpu/loops/simd.h"

namespace troupe::ops::on_cpu {

#if defined(__x86_64__)

bool has_gemm_tiles() {
  static const bool here = !is_switched_off("TROUPE_TILES") && simd_level() != Simd::baseline;
  return here;
}

void gemm_tiles(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
                float* c, const Finish<float>& finish, float* sums, PackedMatrix* kept) {
  if (simd_level() == Simd::avx512) return gemm_avx512(m, n, k, a, b, beta, c, finish, sums, kept);
  gemm_avx2(m, n, k, a, b, beta, c, finish, sums, kept);
}

#else

bool has_gemm_tiles() {
  (void)is_switched_off("TROUPE_TILES");  // what is wrong with the variable is said everywhere
  return false;
}
void gemm_tiles(int64_t, int64_t, int64_t, const Matrix<float>&, const Matrix<float>&, float, float*,
                const Finish<float>&, float*, PackedMatrix*) {}

#endif

}  // namespace troupe::ops::on_cpu
