// The words of CUDA C++ for the host's compiler, included by a flag of the build before anything else of a
// .cu file.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <source_location>
#include <type_traits>

#include "tests/support/sim_cuda/matrix_unit.h"

#define TROUPE_SIM_CUDA 1
#undef __shared__
#define __shared__ static  // blocks run one after another
#undef __constant__
#define __constant__
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__

// Those of the thread that runs now.
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace sim_cuda {

using Place = std::source_location;

// ---- launches
/// Gives arguments the addresses at which kernels see the memory.
class Translator {
 public:
  virtual ~Translator() = default;
  virtual void* pointer(const void* given, bool written) = 0;
  /// Every aligned word of an object that is an address of living memory.
  virtual void object(void* object, size_t bytes) = 0;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void translate(Translator& t) = 0;
  virtual void run_thread() = 0;
};

/// A pointer, or an object whose visit(f) calls f for each of its pointers. One without visit() is looked
/// through for words that are addresses of living memory, in which wrong pointers are not found.
template <class T>
void translate(Translator& t, T& argument) {
  if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) {
    using Of = std::remove_pointer_t<T>;
    argument = static_cast<T>(t.pointer(argument, !std::is_const_v<Of>));
  } else if constexpr (std::is_class_v<T>) {
    static_assert(std::is_trivially_copyable_v<T>, "an argument of a kernel is copied as bytes");
    const auto pointer = [&](auto& p) { sim_cuda::translate(t, p); };
    if constexpr (requires { argument.visit(pointer); })
      argument.visit(pointer);
    else
      t.object(&argument, sizeof argument);
  }
}

/// F is a lambda that holds a kernel and its arguments: it translates them, or runs the kernel if there is no
/// translator. (A tuple of the arguments, and a pointer to its class, took half of a kernel's compile time.)
template <class F>
class KernelOf final : public Kernel {
 public:
  explicit KernelOf(F f) : f_(f) {}
  void translate(Translator& t) override { f_(&t); }
  void run_thread() override { f_(nullptr); }

 private:
  F f_;
};

cudaError_t enqueue(const char* name, cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes,
                    std::unique_ptr<Kernel> kernel);

template <class... P>
cudaError_t launch(const char* name, cudaStream_t stream, void (*kernel)(P...), dim3 grid, dim3 block,
                   size_t shared_bytes, std::type_identity_t<P>... arguments) {
  auto work = [kernel, ... held = arguments](Translator* t) mutable {
    t ? (sim_cuda::translate(*t, held), ...) : kernel(held...);
  };
  return enqueue(name, stream, grid, block, shared_bytes, std::unique_ptr<Kernel>(new KernelOf(work)));
}

/// The calling thread's next launch with this pointer touches no more than these bytes in front of and behind
/// it. Of others all bytes up to the end of the allocation count.
void note_extent(const void* p, size_t before, size_t behind);

// ---- inside a kernel
void* dynamic_shared();
void block_barrier(const Place& at);
/// Waits for the lanes of the mask, each of which hands over a value of up to 16 bytes; what lane number i of
/// the warp gave is at lane_value(i), and null if it did not come.
void warp_meet(unsigned mask, const void* value, size_t bytes, const Place& at);
const void* lane_value(unsigned lane);
/// Of the thread that runs now: its lane, and its number in the block.
unsigned lane_of_thread();
unsigned thread_number();
[[noreturn]] void trap(const char* text, const Place& at);

template <class T>
T from_lane(unsigned mask, T value, unsigned lane, const Place& at) {
  static_assert(sizeof(T) <= 16);
  warp_meet(mask, &value, sizeof value, at);
  if (const void* given = lane_value(lane)) std::memcpy(&value, given, sizeof value);
  return value;
}

}  // namespace sim_cuda

// ---- barriers and warps
inline void __syncthreads(const sim_cuda::Place& at = sim_cuda::Place::current()) {
  sim_cuda::block_barrier(at);
}
inline void __syncwarp(unsigned mask = ~0u, const sim_cuda::Place& at = sim_cuda::Place::current()) {
  sim_cuda::warp_meet(mask, nullptr, 0, at);
}
inline unsigned __activemask() { return ~0u; }
inline void __threadfence() {}
inline void __threadfence_block() {}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
              const sim_cuda::Place& at = sim_cuda::Place::current()) {
  const unsigned me = sim_cuda::lane_of_thread(), w = static_cast<unsigned>(width);
  return sim_cuda::from_lane(mask, value, me / w * w + static_cast<unsigned>(lane) % w, at);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32,
                  const sim_cuda::Place& at = sim_cuda::Place::current()) {
  const unsigned me = sim_cuda::lane_of_thread(), w = static_cast<unsigned>(width);
  const unsigned other = me ^ static_cast<unsigned>(with);
  return sim_cuda::from_lane(mask, value, other / w > me / w ? me : other, at);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32,
                   const sim_cuda::Place& at = sim_cuda::Place::current()) {
  const unsigned me = sim_cuda::lane_of_thread(), w = static_cast<unsigned>(width);
  return sim_cuda::from_lane(mask, value, me % w + by < w ? me + by : me, at);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32,
                 const sim_cuda::Place& at = sim_cuda::Place::current()) {
  const unsigned me = sim_cuda::lane_of_thread(), w = static_cast<unsigned>(width);
  return sim_cuda::from_lane(mask, value, me % w >= by ? me - by : me, at);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const sim_cuda::Place& at = sim_cuda::Place::current()) {
  sim_cuda::warp_meet(mask, &predicate, sizeof predicate, at);
  unsigned found = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    int given = 0;
    if (const void* p = (mask >> lane & 1) ? sim_cuda::lane_value(lane) : nullptr)
      std::memcpy(&given, p, sizeof given);
    found |= static_cast<unsigned>(given != 0) << lane;
  }
  return found;
}
inline int __any_sync(unsigned mask, int predicate, const sim_cuda::Place& at = sim_cuda::Place::current()) {
  return __ballot_sync(mask, predicate, at) != 0;
}
inline int __all_sync(unsigned mask, int predicate, const sim_cuda::Place& at = sim_cuda::Place::current()) {
  return __ballot_sync(mask, !predicate, at) == 0;
}

// Ends the kernel; the device is as after a wrong address.
[[noreturn]] inline void __trap(const sim_cuda::Place& at = sim_cuda::Place::current()) {
  sim_cuda::trap("the kernel trapped", at);
}

// ---- atomics: threads take turns only where they wait
template <class T, class F>
T sim_cuda_exchange(T* at, F&& f) {
  const T before = *at;
  *at = f(before);
  return before;
}
template <class T>
T atomicAdd(T* at, std::type_identity_t<T> by) {
  return sim_cuda_exchange(at, [&](T x) { return static_cast<T>(x + by); });
}
template <class T>
T atomicSub(T* at, std::type_identity_t<T> by) {
  return sim_cuda_exchange(at, [&](T x) { return static_cast<T>(x - by); });
}
template <class T>
T atomicMax(T* at, std::type_identity_t<T> with) {
  return sim_cuda_exchange(at, [&](T x) { return x < with ? with : x; });
}
template <class T>
T atomicMin(T* at, std::type_identity_t<T> with) {
  return sim_cuda_exchange(at, [&](T x) { return with < x ? with : x; });
}
template <class T>
T atomicOr(T* at, std::type_identity_t<T> with) {
  return sim_cuda_exchange(at, [&](T x) { return static_cast<T>(x | with); });
}
template <class T>
T atomicAnd(T* at, std::type_identity_t<T> with) {
  return sim_cuda_exchange(at, [&](T x) { return static_cast<T>(x & with); });
}
template <class T>
T atomicXor(T* at, std::type_identity_t<T> with) {
  return sim_cuda_exchange(at, [&](T x) { return static_cast<T>(x ^ with); });
}
template <class T>
T atomicExch(T* at, std::type_identity_t<T> value) {
  return sim_cuda_exchange(at, [&](T) { return value; });
}
template <class T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return sim_cuda_exchange(at, [&](T x) { return x == expected ? value : x; });
}

// ---- arithmetic
template <class T>
T __ldg(const T* p) {
  return *p;
}
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x ? std::countr_zero(static_cast<unsigned>(x)) + 1 : 0; }
using std::max, std::min;
