#include "tests/support/sim_cuda/cublas_product.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/tensor/half.h"

namespace sim_cuda {
namespace {

// Every element of a matrix as T, as it is read, column after column.
template <class T>
std::vector<T> column_major(const std::byte* p, cudaDataType_t type, const Layout& l, bool flipped) {
  const uint64_t rows = flipped ? l.columns : l.rows, columns = flipped ? l.rows : l.columns;
  std::vector<T> all(rows * columns);
  for (uint64_t j = 0; j < columns; ++j)
    for (uint64_t i = 0; i < rows; ++i) {
      const std::byte* from =
          p + (flipped ? j + i * static_cast<uint64_t>(l.ld) : i + j * static_cast<uint64_t>(l.ld)) *
                  size_of(type);
      uint16_t half;
      if (size_of(type) == 2) std::memcpy(&half, from, 2);
      T& to = all[i + j * rows];
      if (type == CUDA_R_64F || type == CUDA_R_32F)
        std::memcpy(&to, from, sizeof to);
      else
        to = static_cast<T>(type == CUDA_R_16BF ? troupe::bfloat16_to_float(half)
                                                : troupe::float16_to_float(half));
    }
  return all;
}
template <class T>
void store(std::byte* to, cudaDataType_t type, T value) {
  const uint16_t half = type == CUDA_R_16BF  ? troupe::float_to_bfloat16(static_cast<float>(value))
                        : type == CUDA_R_16F ? troupe::float_to_float16(static_cast<float>(value))
                                             : uint16_t{0};
  if (size_of(type) == 2)
    std::memcpy(to, &half, 2);
  else
    std::memcpy(to, &value, sizeof value);
}

template <class T>
void multiply_as(const Product& p, const std::byte* pa, const std::byte* pb, const std::byte* pc,
                 std::byte* pd, std::byte* vector, T alpha, T beta) {
  const auto a = column_major<T>(pa, p.a.type, p.a, p.what.a != CUBLAS_OP_N);
  const auto b = column_major<T>(pb, p.b.type, p.b, p.what.b != CUBLAS_OP_N);
  const auto c = beta != 0 ? column_major<T>(pc, p.c.type, p.c, false) : std::vector<T>();
  std::vector<T> bias;
  if (p.what.epilogue == CUBLASLT_EPILOGUE_BIAS)
    bias = column_major<T>(vector, p.d.type, {p.d.type, p.m, 1, static_cast<int64_t>(p.m)}, false);
  std::vector<T> column(p.m);
  for (uint64_t j = 0; j < p.n; ++j) {
    std::fill(column.begin(), column.end(), T{0});
    T sum = 0;
    for (uint64_t l = 0; l < p.k; ++l) {
      const T by = b[l + j * p.k];
      sum += by;
      for (uint64_t i = 0; i < p.m; ++i) column[i] += a[i + l * p.m] * by;
    }
    for (uint64_t i = 0; i < p.m; ++i) {
      T value = alpha * column[i];
      if (beta != 0) value += beta * c[i + j * p.m];
      if (!bias.empty()) value += bias[i];
      store(pd + (i + j * static_cast<uint64_t>(p.d.ld)) * size_of(p.d.type), p.d.type, value);
    }
    if (p.what.epilogue == CUBLASLT_EPILOGUE_BGRADB) store(vector + j * size_of(p.d.type), p.d.type, sum);
  }
}

}  // namespace

cublasStatus_t check(const Description& what, const Layout& a, const Layout& b, const Layout& c,
                     const Layout& d, Product& p) {
  p = {what, a, b, c, d, d.rows, d.columns, what.a == CUBLAS_OP_N ? a.columns : a.rows};
  const auto shaped = [](const Layout& l, bool flipped, uint64_t rows, uint64_t columns) {
    return l.rows == (flipped ? columns : rows) && l.columns == (flipped ? rows : columns) && rows && columns;
  };
  if (!shaped(a, what.a != CUBLAS_OP_N, p.m, p.k) || !shaped(b, what.b != CUBLAS_OP_N, p.k, p.n) ||
      !shaped(c, false, p.m, p.n))
    return CUBLAS_STATUS_INVALID_VALUE;
  for (const Layout* l : {&a, &b, &c, &d})
    if (l->ld < static_cast<int64_t>(l->rows) || l->batch != d.batch || l->batch < 1)
      return CUBLAS_STATUS_INVALID_VALUE;
  if (a.type != b.type || c.type != d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool wide = a.type == CUDA_R_64F, plain = what.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  if (wide != (what.compute == CUBLAS_COMPUTE_64F) || wide != (d.type == CUDA_R_64F) ||
      what.scale != (wide ? CUDA_R_64F : CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (what.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (a.type != d.type && d.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (plain) return CUBLAS_STATUS_SUCCESS;
  if (wide || d.batch != 1) {
    if (wide || what.epilogue == CUBLASLT_EPILOGUE_BGRADB) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (what.epilogue != CUBLASLT_EPILOGUE_BIAS && what.epilogue != CUBLASLT_EPILOGUE_BGRADB)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!what.vector || reinterpret_cast<uintptr_t>(what.vector) % 16) return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

void multiply(const Product& p, const std::byte* a, const std::byte* b, const std::byte* c, std::byte* d,
              std::byte* vector, double alpha, double beta) {
  if (p.a.type == CUDA_R_64F)
    multiply_as<double>(p, a, b, c, d, vector, alpha, beta);
  else
    multiply_as<float>(p, a, b, c, d, vector, static_cast<float>(alpha), static_cast<float>(beta));
}

}  // namespace sim_cuda
