// How kernels are written and launched, for .cu files. They are compiled twice: by nvcc for GPUs, and by the
// host's compiler for the simulation (tests/support/sim_cuda), whose vocabulary a flag of the build includes
// first.
#pragma once
#include <type_traits>

#include "core/cuda/runtime.h"
#include "core/tensor/tensor.h"

/// T* name: the memory that the launch asked for, shared by the threads of a block. Once in a kernel.
#ifdef TROUPE_SIM_CUDA
#define DYNAMIC_SHARED(T, name) T* const name = static_cast<T*>(sim_cuda::dynamic_shared())
#else
#define DYNAMIC_SHARED(T, name)                                          \
  extern __shared__ __align__(16) unsigned char troupe_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(troupe_dynamic_shared)
#endif

namespace troupe::cuda {

/// Launches a kernel on the calling thread's stream of the device. Pointers among the arguments, also in
/// structs, are of its memory. `name` is for error texts. No size of grid and block may be 0.
template <class... P>
void launch(const char* name, Device device, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
            std::type_identity_t<P>... arguments) {
#ifdef TROUPE_SIM_CUDA
  const OnStream stream(device);
  check(sim_cuda::launch(name, stream, kernel, grid, block, shared_bytes, arguments...), name, device);
#else
  void* pointers[sizeof...(P) + 1] = {&arguments...};
  launch_raw(name, device, reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, pointers);
#endif
}

/// The elements of t on its device, for a launch; null for an undefined tensor. The simulation learns which
/// bytes are the tensor's.
template <class T>
T* elements(const Tensor& t) {
  if (!t.defined()) return nullptr;
#ifdef TROUPE_SIM_CUDA
  int64_t before = 0, behind = t.numel() > 0;
  for (int d = 0; d < t.dim() && behind; ++d) {
    const int64_t reach = (t.shape()[d] - 1) * t.strides()[d];
    (reach < 0 ? before : behind) += reach < 0 ? -reach : reach;
  }
  const auto item = static_cast<int64_t>(item_size(t.dtype()));
  sim_cuda::note_extent(t.address(), static_cast<size_t>(before * item), static_cast<size_t>(behind * item));
#endif
  return reinterpret_cast<T*>(t.address());
}

/// As many blocks of `block` threads as give each of n > 0 items a thread, at most 2^31 - 1.
inline dim3 blocks_for(size_t n, unsigned block) {
  const size_t blocks = (n + block - 1) / block;
  return dim3(static_cast<unsigned>(blocks < 0x7fffffff ? blocks : 0x7fffffff));
}

}  // namespace troupe::cuda
