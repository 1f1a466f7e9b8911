// The functions of cuBLASLt that products call: what the real library lets pass is checked, and a product
// runs on the CPU when its stream comes to it.
#include <cublasLt.h>

#include <cstring>

#include "tests/support/sim_cuda/cublas_product.h"
#include "tests/support/sim_cuda/machine.h"

using sim_cuda::Description, sim_cuda::Layout, sim_cuda::Product, sim_cuda::size_of, sim_cuda::check;
using sim_cuda::Machine, sim_cuda::Fault;

namespace {

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

// What decides whether an algorithm may be used for a product; it lies in the algorithm.
struct Problem {
  uint64_t m, n, k;
  int32_t batch;
  uint16_t epilogue, types, alignment[4];
};
static_assert(sizeof(Problem) <= sizeof(cublasLtMatmulAlgo_t));

Problem problem_of(const Product& p) {
  return {p.m,
          p.n,
          p.k,
          p.d.batch,
          static_cast<uint16_t>(p.what.epilogue),
          static_cast<uint16_t>(p.a.type << 8 | p.d.type),
          {}};
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
  if (m.audited) {
    const double mn = static_cast<double>(p.m) * static_cast<double>(p.n), k = static_cast<double>(p.k);
    const auto factors_read = (extent(p.a) + extent(p.b)), result = extent(p.d);
    m.keep({.kind = sim_cuda::Asked::Kind::product,
            .name = std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k) +
                    (p.d.batch > 1 ? " of " + std::to_string(p.d.batch) : ""),
            .read = factors_read + (factors[1] != 0 ? result : 0),
            .written = result,
            .flops = 2 * mn * k * p.d.batch});
  }
  if (m.dry) return CUBLAS_STATUS_SUCCESS;
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
      multiply(p, from_a + step(p.a), from_b + step(p.b), from, to + step(p.d), vector, factors[0],
               factors[1]);
    }
  };
  m.add(*s, {"cublasLtMatmul", run});
  return m.sticky == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
