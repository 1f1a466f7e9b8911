// The matrix unit of a GPU (sm_80 and later), and copies into shared memory beside the computation. The
// simulation has what they do in tests/support/sim_cuda/matrix_unit.h.
//
// Lane l of a warp, g = l / 4, t = l % 4, holds, of 16-bit elements, two neighbours in each word,
//   of A [16, 16]: a[0] (g, 2t..), a[1] (g + 8, 2t..), a[2] (g, 2t + 8..), a[3] (g + 8, 2t + 8..)
//   of B [16, 8]:  b[0] (2t.., g), b[1] (2t + 8.., g)
// of floats rounded to TF32
//   of A [16, 8]:  a[0] (g, t), a[1] (g + 8, t), a[2] (g, t + 4), a[3] (g + 8, t + 4)
//   of B [8, 8]:   b[0] (t, g), b[1] (t + 4, g)
// and of D [16, 8]: d[0], d[1] (g, 2t..), d[2], d[3] (g + 8, 2t..).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace troupe::ops::on_cuda::matrix_unit {

using Bf16 = __nv_bfloat16;
using Fp16 = __half;

/// Two neighbours of a fragment, the first one in the low half.
template <class T>
__device__ __forceinline__ uint32_t pair(float first, float second) {
  uint32_t bits;
  if constexpr (std::is_same_v<T, Bf16>) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
    memcpy(&bits, &both, sizeof bits);
  } else {
    const __half2 both = __floats2half2_rn(first, second);
    memcpy(&bits, &both, sizeof bits);
  }
  return bits;
}

#ifdef TROUPE_SIM_CUDA

using sim_cuda::Place;

/// first += a (b[0], b[1]) and second += a (b[2], b[3]), of T = Bf16 or Fp16.
template <class T>
inline void mma_twice(float (&first)[4], float (&second)[4], const uint32_t (&a)[4], const uint32_t (&b)[4],
                      const Place& at = Place::current()) {
  const sim_cuda::Product both[] = {{first, a, b}, {second, a, b + 2}};
  sim_cuda::multiply(std::is_same_v<T, Bf16> ? sim_cuda::Factor::bfloat16 : sim_cuda::Factor::float16, both,
                     at);
}
/// The same of TF32, each as three products of high and low digits.
inline void mma_twice_tf32(float (&first)[4], float (&second)[4], const uint32_t (&a)[4],
                           const uint32_t (&a_low)[4], const uint32_t (&b)[4], const uint32_t (&b_low)[4],
                           const Place& at = Place::current()) {
  const sim_cuda::Product all[] = {{first, a_low, b},      {second, a_low, b + 2}, {first, a, b_low},
                                   {second, a, b_low + 2}, {first, a, b},          {second, a, b + 2}};
  sim_cuda::multiply(sim_cuda::Factor::tf32, all, at);
}
/// x rounded to TF32.
inline uint32_t tf32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return std::isfinite(x) ? (bits + 0x1000u) & 0xffffe000u : bits;
}
/// Four matrices [8, 8] of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8 in shared
/// memory.
template <bool transposed>
inline void load_matrices(uint32_t (&r)[4], const void* row, const Place& at = Place::current()) {
  sim_cuda::load_matrices(r, row, transposed, at);
}
/// What all lanes of a warp read from shared memory.
template <class T>
inline T load_shared(const T* p) {
  sim_cuda::count_shared_read(p, sizeof(T));
  return *p;
}
/// `bytes`, 16 or 4, from global to shared memory; zeros if not there.
template <int bytes = 16>
inline void copy_async(void* to, const void* from, bool there, const Place& at = Place::current()) {
  sim_cuda::copy_async(to, from, bytes, there, at);
}
inline void commit_copies() { sim_cuda::commit_copies(); }
/// For all groups of copies of this thread but the last n. Those of others are there behind the next barrier.
template <int n>
inline void wait_for_copies() {
  sim_cuda::wait_for_copies(n);
}
/// 2^x, two units in the last place off; 0 for what would be subnormal.
inline float exp2_fast(float x) { return x < -126 ? 0 : std::exp2(x); }
inline float fma_fast(float a, float b, float c) { return std::fma(a, b, c); }
/// 1 / x, a unit in the last place off; 0 for what would be subnormal.
inline float reciprocal_fast(float x) { return std::fabs(x) > 0x1p126f ? 0 : 1 / x; }

#else

template <class T>
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, Bf16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <class T>
__device__ __forceinline__ void mma_twice(float (&first)[4], float (&second)[4], const uint32_t (&a)[4],
                                          const uint32_t (&b)[4]) {
  mma<T>(first, a, b[0], b[1]);
  mma<T>(second, a, b[2], b[3]);
}
__device__ __forceinline__ void mma_twice_tf32(float (&first)[4], float (&second)[4], const uint32_t (&a)[4],
                                               const uint32_t (&a_low)[4], const uint32_t (&b)[4],
                                               const uint32_t (&b_low)[4]) {
  mma_tf32(first, a_low, b[0], b[1]);
  mma_tf32(second, a_low, b[2], b[3]);
  mma_tf32(first, a, b_low[0], b_low[1]);
  mma_tf32(second, a, b_low[2], b_low[3]);
  mma_tf32(first, a, b[0], b[1]);
  mma_tf32(second, a, b[2], b[3]);
}
__device__ __forceinline__ uint32_t tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
template <bool transposed>
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void* row) {
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
template <class T>
__device__ __forceinline__ T load_shared(const T* p) {
  return *p;
}
template <int bytes = 16>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool there) {
  const int n = there ? bytes : 0;
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(n)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(n)
                 : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float fma_fast(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif

}  // namespace troupe::ops::on_cuda::matrix_unit
