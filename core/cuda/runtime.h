// Streams, pools and errors, for all units that call CUDA. Only units in folders called cuda/ include it.
#pragma once
#include <cuda_runtime_api.h>

#include <mutex>
#include <string>

#include "core/cuda/install.h"

namespace troupe::cuda {

/// 0 where there is no driver or no GPU.
int device_count();
/// Makes it the calling thread's device, as launches on its streams need. `invalid` if there is none.
void use(Device device);
/// The one stream of a device, which does not wait for the default stream; made when it is first asked for.
cudaStream_t stream_of(Device device);
/// Where its memory comes from; what is freed stays in it.
cudaMemPool_t pool_of(Device device);

/// Throws `failed` unless it is cudaSuccess: "[cuda] what on cuda:0: cudaErrorX, the runtime's text".
void check(cudaError_t error, const char* what, Device device);
[[noreturn]] void fail(cudaError_t error, const std::string& what, Device device);

/// Makes a stream wait for what is on another one now. Both devices' work is in order after it.
void wait_for(Device waiting, Device other);

/// Lets the work of `reader` use the memory of `owner` without a way through the host, where the machine can.
void share_memory(Device owner, Device reader);

/// Launches on the device's stream; `arguments` point to the values of the parameters.
void launch_raw(const char* name, Device device, const void* kernel, dim3 grid, dim3 block,
                size_t shared_bytes, void** arguments);

}  // namespace troupe::cuda
