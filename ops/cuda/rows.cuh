// Rows that stay in registers: each element is read once, 16 bytes at a time, computed with as a float, and
// written once. A row belongs to a group of threads, a warp or more; a block has several rows at once.
#pragma once
#include "ops/cuda/elementwise.cuh"
#include "ops/cuda/matrix_unit.cuh"

namespace troupe::ops::on_cuda {

constexpr int kRowThreads = 128;  // of a block

/// What a thread of a group has of a row: kPacks times 16 bytes.
template <class T, int kPacks, int kGroup>
struct RowPart {
  static constexpr int kEach = 16 / static_cast<int>(sizeof(T)), kMost = kPacks * kGroup * kEach;
  float at[kPacks][kEach];

  // The column of its pack p.
  static __device__ __forceinline__ int column(int p) {
    return (static_cast<int>(threadIdx.x) % kGroup + p * kGroup) * kEach;
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
#pragma unroll
      for (int e = 0; e < kEach; ++e) at[p][e] = 0;
  }
  // Zeros behind the n-th element, and of no row.
  __device__ __forceinline__ void load(const T* row, int n) {
    clear();
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (row && column(p) < n) {
        const auto values = cuda::load_pack<kEach>(row + column(p));
#pragma unroll
        for (int e = 0; e < kEach; ++e) at[p][e] = static_cast<float>(values.at[e]);
      }
  }
  __device__ __forceinline__ void store(T* row, int n) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (column(p) < n) {
        cuda::Pack<T, kEach> values;
#pragma unroll
        for (int e = 0; e < kEach; ++e) values.at[e] = static_cast<T>(at[p][e]);
        cuda::store_pack(row + column(p), values);
      }
  }
  // f(p, e) for the elements that are there.
  template <class F>
  __device__ __forceinline__ static void each(int n, F&& f) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (column(p) < n)
#pragma unroll
        for (int e = 0; e < kEach; ++e) f(p, e);
  }
};

struct Plus2 {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
struct Larger2 {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Joins values of the threads of a group, in a fixed order; all of them get the results. All threads of the
/// block come.
template <int kGroup>
class GroupValues {
 public:
  static constexpr int kWarps = kGroup / 32, kMost = 2;
  /// Floats that a block's groups share.
  static constexpr int kShared = kWarps > 1 ? kRowThreads / kGroup * 2 * kMost* kWarps : 1;

  __device__ __forceinline__ explicit GroupValues(float* shared)
      : mine_(shared + (kWarps > 1 ? static_cast<int>(threadIdx.x) / kGroup * 2 * kMost * kWarps : 0)) {}
  template <int N, class Join = Plus2>
  __device__ __forceinline__ void join(float (&x)[N], Join join = {}) {
    static_assert(N <= kMost);
#pragma unroll
    for (int with = 16; with > 0; with /= 2)
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] = join(x[k], __shfl_xor_sync(~0u, x[k], with));
    if constexpr (kWarps > 1) {
      float* const here = mine_ + turn_ * kMost * kWarps;  // in turns: some may still read the last ones
      turn_ ^= 1;
      if ((threadIdx.x & 31) == 0)
#pragma unroll
        for (int k = 0; k < N; ++k) here[k * kWarps + static_cast<int>(threadIdx.x) % kGroup / 32] = x[k];
      __syncthreads();
#pragma unroll
      for (int k = 0; k < N; ++k) {
        x[k] = here[k * kWarps];
#pragma unroll
        for (int w = 1; w < kWarps; ++w) x[k] = join(x[k], here[k * kWarps + w]);
      }
    }
  }

 private:
  float* const mine_;
  int turn_ = 0;
};

/// e^x of scores T: of halves two units of float32 in the last place off, relative to the larger of 1 and
/// |x|.
template <class T, class A>
__device__ __forceinline__ A exp_of(A x) {
  if constexpr (sizeof(T) == 2)
    return matrix_unit::exp2_fast(x * std::numbers::log2e_v<float>);
  else
    return std::exp(x);
}

template <class Body>
__global__ void __launch_bounds__(kRowThreads) each_rows(Body body) {
  DYNAMIC_SHARED(float, shared);
  body(static_cast<int64_t>(blockIdx.x), shared);
}
template <class Body>
void run_rows(const Call& c, Device device, int64_t blocks, size_t shared_floats, const Body& body) {
  if (blocks > 0)
    cuda::launch(c.name(), device, each_rows<Body>, dim3(static_cast<unsigned>(blocks)), dim3(kRowThreads),
                 shared_floats * sizeof(float), body);
}

/// Calls f<kPacks, kGroup>() for rows of n elements of T that lie one after the other, from addresses of
/// which all are multiples of 16; false: there is no such kernel.
template <class T, class F>
bool visit_rows(int64_t n, std::initializer_list<const void*> at, F&& f) {
  constexpr int kEach = 16 / static_cast<int>(sizeof(T));
  for (const void* p : at)
    if (reinterpret_cast<uintptr_t>(p) % 16) return false;
  if (n % kEach || sizeof(T) == 8) return false;
  constexpr int kFull = 32 / kEach;  // 32 floats of a thread, several times
  if (n <= 32 * kEach)
    f.template operator()<1, 32>();
  else if (n <= kFull * 32 * kEach)
    f.template operator()<kFull, 32>();
  else if (n <= kFull * 128 * kEach)
    f.template operator()<kFull, 128>();
  else
    return false;
  return true;
}

}  // namespace troupe::ops::on_cuda
