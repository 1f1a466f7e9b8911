// The functions of cuBLASLt that products call: what the real library lets pass is checked, and a product
// runs on the CPU when its stream comes to it.
#include <cublasLt.h>

#include <cstring>
#include <optional>
#include <vector>

#include "core/tensor/half.h"
#include "tests/support/sim_cuda/machine.h"

using sim_cuda::Machine, sim_cuda::Fault;

namespace {

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
struct Wishes {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};
};

template <class T, class Handle>
T& as(Handle handle) {
  return *reinterpret_cast<T*>(handle);
}

template <class T>
cublasStatus_t read(T& to, const void* from, size_t bytes) {
  if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

size_t size_of(cudaDataType_t t) { return t == CUDA_R_64F ? 8 : t == CUDA_R_32F ? 4 : 2; }

// What decides whether an algorithm may be used for a product; it lies in the algorithm.
struct Problem {
  uint64_t m, n, k;
  int32_t batch;
  uint16_t epilogue, types, alignment[4];
};
static_assert(sizeof(Problem) <= sizeof(cublasLtMatmulAlgo_t));

struct Product {
  Description what;
  Layout a, b, c, d;
  uint64_t m, n, k;
};

// Sizes, types and epilogues that go together, by the tables of NVIDIA's documentation.
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

Problem problem_of(const Product& p) {
  return {p.m,
          p.n,
          p.k,
          p.d.batch,
          static_cast<uint16_t>(p.what.epilogue),
          static_cast<uint16_t>(p.a.type << 8 | p.d.type),
          {}};
}

// ---- the product itself
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
void multiply(const Product& p, const std::byte* pa, const std::byte* pb, const std::byte* pc, std::byte* pd,
              std::byte* vector, T alpha, T beta) {
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

size_t extent(const Layout& l) {
  const auto columns = static_cast<size_t>(l.columns), batch = static_cast<size_t>(l.batch);
  return ((columns - 1) * static_cast<size_t>(l.ld) + static_cast<size_t>(l.rows) +
          (batch - 1) * static_cast<size_t>(l.step)) *
         size_of(l.type);
}

size_t workspace_of(const Product& p) { return p.k >= 32 ? 512 : 0; }

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete &as<Description>(d);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t what, const void* value,
                                              size_t bytes) {
  auto& d = as<Description>(handle);
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return read(d.a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return read(d.b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return read(d.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return read(d.vector, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete &as<Layout>(l);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t what, const void* value,
                                                size_t bytes) {
  auto& l = as<Layout>(handle);
  if (what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return read(l.batch, value, bytes);
  if (what == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) return read(l.step, value, bytes);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Wishes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t w) {
  delete &as<Wishes>(w);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* value, size_t bytes) {
  auto& w = as<Wishes>(handle);
  if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return read(w.workspace, value, bytes);
  const int which = what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  return which >= 0 && which < 4 ? read(w.alignment[which], value, bytes) : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t what,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wishes, int,
                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
  *count = 0;
  Product p;
  if (const auto s =
          check(as<Description>(what), as<Layout>(a), as<Layout>(b), as<Layout>(c), as<Layout>(d), p);
      s != CUBLAS_STATUS_SUCCESS)
    return s;
  const auto& w = as<Wishes>(wishes);
  if (w.workspace < workspace_of(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  Problem made = problem_of(p);
  for (int i = 0; i < 4; ++i) made.alignment[i] = static_cast<uint16_t>(w.alignment[i]);
  *found = {};
  std::memcpy(&found->algo, &made, sizeof made);
  found->workspaceSize = workspace_of(p);
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t what, const void* alpha, const void* pa,
                              cublasLtMatrixLayout_t a, const void* pb, cublasLtMatrixLayout_t b,
                              const void* beta, const void* pc, cublasLtMatrixLayout_t c, void* pd,
                              cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  Product p;
  if (const auto s =
          check(as<Description>(what), as<Layout>(a), as<Layout>(b), as<Layout>(c), as<Layout>(d), p);
      s != CUBLAS_STATUS_SUCCESS)
    return s;
  Problem made, now = problem_of(p);
  std::memcpy(&made, algo, sizeof made);
  std::memcpy(now.alignment, made.alignment, sizeof now.alignment);
  const void* all[] = {pa, pb, pc, pd};
  for (int i = 0; i < 4; ++i)
    if (reinterpret_cast<uintptr_t>(all[i]) % made.alignment[i]) return CUBLAS_STATUS_INVALID_VALUE;
  if (std::memcmp(&made, &now, sizeof now) != 0 || workspace_bytes < workspace_of(p))
    return CUBLAS_STATUS_INVALID_VALUE;
  double factors[2];
  for (int i = 0; i < 2; ++i) {
    const void* f = i ? beta : alpha;
    factors[i] = p.what.scale == CUDA_R_64F ? *static_cast<const double*>(f) : *static_cast<const float*>(f);
  }
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  sim_cuda::Stream* s = m.find(stream);
  if (m.sticky != cudaSuccess || !s) return CUBLAS_STATUS_EXECUTION_FAILED;
  ++m.counters.launches;
  const int device = s->device;
  const auto run = [=, &m] {
    const auto seen = [&](const void* at, size_t bytes, bool written, const char* name) {
      sim_cuda::Memory* memory = m.memory_of(at);
      if (!memory || memory != m.memories[static_cast<size_t>(device)].get())
        throw Fault{std::string(name) + " is not in the device's memory"};
      return static_cast<std::byte*>(memory->seen(at, bytes, written, std::string(name) + ":"));
    };
    const std::byte *from_a = seen(pa, extent(p.a), false, "A"), *from_b = seen(pb, extent(p.b), false, "B");
    const std::byte* from_c = factors[1] != 0 ? seen(pc, extent(p.c), false, "C") : nullptr;
    std::byte* to = seen(pd, extent(p.d), true, "D");
    std::byte* vector = nullptr;
    if (p.what.epilogue == CUBLASLT_EPILOGUE_BIAS)
      vector = seen(p.what.vector, p.m * size_of(p.d.type), false, "the bias");
    if (p.what.epilogue == CUBLASLT_EPILOGUE_BGRADB)
      vector = seen(p.what.vector, p.n * size_of(p.d.type), true, "the gradient of the bias");
    if (workspace_of(p))
      std::memset(seen(workspace, workspace_of(p), true, "the workspace"), sim_cuda::kPoison,
                  workspace_of(p));
    for (int64_t i = 0; i < p.d.batch; ++i) {
      const auto step = [&](const Layout& l) { return i * l.step * static_cast<int64_t>(size_of(l.type)); };
      const std::byte* from = from_c ? from_c + step(p.c) : nullptr;
      if (p.a.type == CUDA_R_64F)
        multiply<double>(p, from_a + step(p.a), from_b + step(p.b), from, to + step(p.d), vector, factors[0],
                         factors[1]);
      else
        multiply<float>(p, from_a + step(p.a), from_b + step(p.b), from, to + step(p.d), vector,
                        static_cast<float>(factors[0]), static_cast<float>(factors[1]));
    }
  };
  m.add(*s, {"cublasLtMatmul", run});
  return m.sticky == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
