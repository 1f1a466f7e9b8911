// What every function of CUDA's runtime does here.
#pragma once
#include <cuda_runtime_api.h>

#include <mutex>

#include "tests/support/sim_cuda/machine.h"

namespace sim_cuda {

inline thread_local int current_device = 0;
inline thread_local cudaError_t last_error = cudaSuccess;

inline cudaError_t told(cudaError_t e) {
  if (e != cudaSuccess) last_error = e;
  return e;
}

// What every call does: the lock, then what is wrong with the machine already.
template <class F>
cudaError_t call(F&& f) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  if (m.memories.empty()) return told(m.no_devices);
  if (m.sticky != cudaSuccess) return told(m.sticky);
  const cudaError_t e = f(m);
  return told(e == cudaSuccess ? m.sticky : e);
}

template <class F>
cudaError_t on_stream(cudaStream_t handle, F&& f) {
  return call([&](Machine& m) {
    Stream* s = m.find(handle);
    return s ? f(m, *s) : cudaErrorInvalidResourceHandle;  // the default stream, too: nobody here uses it
  });
}

template <class Handle>
Handle new_handle(Machine& m) {
  return reinterpret_cast<Handle>(m.next_handle += 0x10);
}

}  // namespace sim_cuda
