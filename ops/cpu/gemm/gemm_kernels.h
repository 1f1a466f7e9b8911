// gemm_tiles() in each instruction set that has tiles.
#pragma once
#include "ops/cpu/gemm/gemm.h"

namespace troupe::ops::on_cpu {

void gemm_avx512(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
                 float* c, const Finish<float>& finish, float* sums, PackedMatrix* kept);
void gemm_avx2(int64_t m, int64_t n, int64_t k, const Matrix<float>& a, const Matrix<float>& b, float beta,
               float* c, const Finish<float>& finish, float* sums, PackedMatrix* kept);
void gemm_avx2(int64_t m, int64_t n, int64_t k, const Matrix<double>& a, const Matrix<double>& b, double beta,
               double* c, const Finish<double>& finish, double* sums);

}  // namespace troupe::ops::on_cpu
