// Products as cuBLASLt describes them: columns first.
#pragma once
#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

namespace sim_cuda {

struct Description {
  cublasComputeType_t compute{};
  cudaDataType_t scale{};
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* vector = nullptr;
};
struct Layout {
  cudaDataType_t type{};
  uint64_t rows = 0, columns = 0;
  int64_t ld = 0, step = 0;
  int32_t batch = 1;
};
struct Product {
  Description what;
  Layout a, b, c, d;
  uint64_t m, n, k;
};

/// Bytes of an element.
inline size_t size_of(cudaDataType_t t) { return t == CUDA_R_64F ? 8 : t == CUDA_R_32F ? 4 : 2; }

/// Sizes, types and epilogues that go together, by the tables of NVIDIA's documentation.
cublasStatus_t check(const Description& what, const Layout& a, const Layout& b, const Layout& c,
                     const Layout& d, Product& p);
/// One product of a batch. `vector`: the bias, or what takes its gradient.
void multiply(const Product& p, const std::byte* a, const std::byte* b, const std::byte* c, std::byte* d,
              std::byte* vector, double alpha, double beta);

}  // namespace sim_cuda
