// Products in tiles of our own: in which instruction set.
#include "ops/cpu/gemm/gemm_kernels.h"
#include "ops/cpu/loops/simd.h"

namespace troupe::ops::on_cpu {

#if defined(__x86_64__)

void gemm_tiles(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
                float* c, const Finish<float>& finish, float* sums, PackedMatrix* kept) {
  if (level() >= CpuLevel::avx512) return gemm_avx512(m, n, k, a, b, beta, c, finish, sums, kept);
  gemm_avx2(m, n, k, a, b, beta, c, finish, sums, kept);
}

#else

void gemm_tiles(int64_t, int64_t, int64_t, const Matrix<float>&, const Matrix<float>&, float, float*,
                const Finish<float>&, float*, PackedMatrix*) {}

#endif

}  // namespace troupe::ops::on_cpu
