#include "ops/cuda/gemm.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/cuda/runtime.h"
#include "core/tensor/creation.h"
#include "ops/cuda/cublas_lt.h"
#include "ops/matmul.h"

namespace troupe::ops::on_cuda {
namespace {

constexpr size_t kMostWorkspace = 32 << 20;
constexpr size_t kMostPlans = 4096;
constexpr int64_t kMostAtOnce = 65535;  // matrices of a batch

cudaDataType_t type_of(DType t) {
  return t == float64 ? CUDA_R_64F : t == float32 ? CUDA_R_32F : t == bfloat16 ? CUDA_R_16BF : CUDA_R_16F;
}

// The largest power of 2, up to 256, that divides an address: algorithms depend on it.
uint32_t alignment_of(const void* p) {
  const auto at = reinterpret_cast<uintptr_t>(p) | 256;
  return static_cast<uint32_t>(at & (~at + 1));
}

// Everything that the choice of an algorithm depends on, without gaps, so that it can be compared as bytes.
struct Key {
  int64_t m, n, k, batch, lda, ldb, step_a, step_b;
  uint32_t align_a, align_b, align_c, align_d;
  uint32_t types, epilogue, flags, device;
  bool operator==(const Key& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};
static_assert(std::has_unique_object_representations_v<Key>);
struct HashOfKey {
  size_t operator()(const Key& key) const {
    return std::hash<std::string_view>{}({reinterpret_cast<const char*>(&key), sizeof key});
  }
};

struct Plan {
  bool possible = false;
  cublasLtMatmulAlgo_t algo{};
  size_t workspace = 0;
};

class Plans {
 public:
  bool find(const Key& key, Plan& plan) {
    std::lock_guard lock(mutex_);
    const auto found = plans_.find(key);
    if (found == plans_.end()) return false;
    plan = found->second;
    return true;
  }
  void keep(const Key& key, const Plan& plan) {
    std::lock_guard lock(mutex_);
    if (plans_.size() >= kMostPlans) plans_.clear();
    plans_.emplace(key, plan);
  }

 private:
  troupe::internal::Mutex mutex_;
  std::unordered_map<Key, Plan, HashOfKey> plans_;
};

// cuBLASLt's objects for one product. It knows columns only: a row-major product is the one of the transposed
// matrices in the other order, Dᵀ = Bᵀ Aᵀ, and what lies there needs no copy.
class Product {
 public:
  Product(const char* name, Device device, const Gemm& g) : name_(name), device_(device), g_(g) {}
  Product(const Product&) = delete;
  ~Product() {
    if (product_) lt_.MatmulDescDestroy(product_);
    for (const cublasLtMatrixLayout_t layout : {first_, second_, result_})
      if (layout) lt_.MatrixLayoutDestroy(layout);
  }

  bool run() {
    describe();
    static auto& plans = *new Plans;
    const void* c = g_.c ? g_.c : g_.d;
    const Key key{g_.m,
                  g_.n,
                  g_.k,
                  g_.batch,
                  g_.a.ld,
                  g_.b.ld,
                  g_.a.step,
                  g_.b.step,
                  alignment_of(g_.b.p),
                  alignment_of(g_.a.p),
                  alignment_of(c),
                  alignment_of(g_.d),
                  static_cast<uint32_t>(g_.in) | static_cast<uint32_t>(g_.out) << 8,
                  static_cast<uint32_t>(epilogue_),
                  g_.a.transposed | g_.b.transposed * 2u | static_cast<uint32_t>(compute_) << 2,
                  static_cast<uint32_t>(device_.index)};
    Plan plan;
    if (!plans.find(key, plan)) plans.keep(key, plan = ask(key));
    if (!plan.possible) {
      if (epilogue_ != CUBLASLT_EPILOGUE_DEFAULT) return false;
      fail("has no algorithm");
    }
    const Tensor workspace =
        plan.workspace ? empty({static_cast<int64_t>(plan.workspace)}, {uint8, device_}) : Tensor();
    const double wide[] = {1, g_.c ? 1.0 : 0.0};
    const float narrow[] = {1, g_.c ? 1.f : 0.f};
    const void* factors[] = {&wide[0], &wide[1]};
    if (g_.in != float64) factors[0] = &narrow[0], factors[1] = &narrow[1];
    const cuda::OnStream stream(device_);
    check(lt_.Matmul(handle_, product_, factors[0], g_.b.p, first_, g_.a.p, second_, factors[1], c, result_,
                     g_.d, result_, &plan.algo, workspace.defined() ? workspace.address() : nullptr,
                     plan.workspace, stream));
    return true;
  }

 private:
  void describe() {
    const bool wide = g_.in == float64;
    const bool tf32 = g_.in == float32 && float32_matmul_precision() != "highest";
    compute_ = wide ? CUBLAS_COMPUTE_64F : tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check(lt_.MatmulDescCreate(&product_, compute_, wide ? CUDA_R_64F : CUDA_R_32F));
    const auto op = [](const Factor& f) { return f.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
    set(CUBLASLT_MATMUL_DESC_TRANSA, op(g_.b));
    set(CUBLASLT_MATMUL_DESC_TRANSB, op(g_.a));
    epilogue_ = g_.bias       ? CUBLASLT_EPILOGUE_BIAS
                : g_.row_sums ? CUBLASLT_EPILOGUE_BGRADB
                              : CUBLASLT_EPILOGUE_DEFAULT;
    if (epilogue_ != CUBLASLT_EPILOGUE_DEFAULT) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_);
      const void* vector = g_.bias ? g_.bias : g_.row_sums;
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
    }
    describe(first_, g_.in, g_.b, g_.n, g_.k);
    describe(second_, g_.in, g_.a, g_.k, g_.m);
    describe(result_, g_.out, {g_.d, g_.n, false, g_.m * g_.n}, g_.n, g_.m);
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t what, const T& value) {
    check(lt_.MatmulDescSetAttribute(product_, what, &value, sizeof value));
  }

  // A matrix as cuBLASLt sees it before it transposes it.
  void describe(cublasLtMatrixLayout_t& layout, DType type, const Factor& f, int64_t rows, int64_t columns) {
    if (f.transposed) std::swap(rows, columns);
    check(lt_.MatrixLayoutCreate(&layout, type_of(type), static_cast<uint64_t>(rows),
                                 static_cast<uint64_t>(columns), f.ld));
    if (g_.batch == 1) return;
    const auto count = static_cast<int32_t>(g_.batch);
    check(lt_.MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    check(lt_.MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &f.step,
                                       sizeof f.step));
  }

  Plan ask(const Key& key) {
    cublasLtMatmulPreference_t wishes = nullptr;
    check(lt_.MatmulPreferenceCreate(&wishes));
    const auto wish = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      return lt_.MatmulPreferenceSetAttribute(wishes, what, &value, sizeof value);
    };
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const auto go_on = [&](cublasStatus_t s) { status = status == CUBLAS_STATUS_SUCCESS ? s : status; };
    go_on(wish(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kMostWorkspace}));
    go_on(wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_a));
    go_on(wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_b));
    go_on(wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_c));
    go_on(wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_d));
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = lt_.MatmulAlgoGetHeuristic(handle_, product_, first_, second_, result_, result_, wishes, 1,
                                          &found, &count);
      if (status == CUBLAS_STATUS_NOT_SUPPORTED) status = CUBLAS_STATUS_SUCCESS, count = 0;
    }
    lt_.MatmulPreferenceDestroy(wishes);
    check(status);
    return {count == 1 && found.state == CUBLAS_STATUS_SUCCESS, found.algo, found.workspaceSize};
  }

  void check(cublasStatus_t status) const {
    if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
      fail("gives status " + std::to_string(static_cast<int>(status)));
  }
  [[noreturn]] void fail(const std::string& how) const {
    throw_error(ErrorKind::failed, "[cuda] " + std::string(name_) + " on " + device_.str() + ": cuBLASLt " +
                                       how + " for " + std::to_string(g_.batch) + " products [" +
                                       std::to_string(g_.m) + ", " + std::to_string(g_.k) + "] x [" +
                                       std::to_string(g_.k) + ", " + std::to_string(g_.n) + "] of " +
                                       std::string(troupe::name(g_.in)));
  }

  const char* name_;
  Device device_;
  const Gemm& g_;
  const CublasLt& lt_ = CublasLt::get();
  cublasLtHandle_t handle_ = cublas_handle(device_);
  cublasComputeType_t compute_ = CUBLAS_COMPUTE_32F;
  cublasLtEpilogue_t epilogue_ = CUBLASLT_EPILOGUE_DEFAULT;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
};

const void* moved(const void* p, int64_t elements, DType type) {
  return static_cast<const std::byte*>(p) + elements * static_cast<int64_t>(item_size(type));
}

}  // namespace

bool gemm(const char* name, Device device, const Gemm& all) {
  for (int64_t first = 0; first < all.batch; first += kMostAtOnce) {
    Gemm g = all;
    g.batch = std::min(kMostAtOnce, all.batch - first);
    g.a.p = moved(g.a.p, first * g.a.step, g.in);
    g.b.p = moved(g.b.p, first * g.b.step, g.in);
    g.d = const_cast<void*>(moved(g.d, first * g.m * g.n, g.out));
    if (g.c) g.c = moved(g.c, first * g.m * g.n, g.out);
    if (!Product(name, device, g).run()) return false;
  }
  return true;
}

}  // namespace troupe::ops::on_cuda
