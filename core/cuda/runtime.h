// Streams, pools and errors, for all units that call CUDA. Only units in folders called cuda/ include it.
#pragma once
#include <cuda_runtime_api.h>

#include <mutex>
#include <string>

#include "core/cuda/install.h"
#include "core/memory/backend.h"

namespace troupe::cuda {

/// 0 where there is no driver or no GPU.
int device_count();
std::string why_none();
/// Makes it the calling thread's device, as launches on its streams need. `invalid` if there is none.
void use(Device device);
/// The number of the calling thread's streams: that of its actor.
StreamId stream_number();
/// The calling thread's stream of a device, which does not wait for the default stream; made when it is first
/// asked for. Work is put on it through OnStream.
cudaStream_t stream_of(Device device);
cudaStream_t stream_of(Device device, StreamId number);

/// While work is put on the calling thread's stream of a device, which it makes current. Its end counts the
/// work, so that others can wait for it.
class OnStream {
 public:
  explicit OnStream(Device device);
  ~OnStream();
  OnStream(const OnStream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  Device device_;
  StreamId number_;
  cudaStream_t stream_;
};
/// Where its memory comes from; what is freed stays in it.
cudaMemPool_t pool_of(Device device);

/// Throws `failed` unless it is cudaSuccess: "[cuda] what on cuda:0: cudaErrorX, the runtime's text".
void check(cudaError_t error, const char* what, Device device);
[[noreturn]] void fail(cudaError_t error, const std::string& what, Device device);

/// A number for the work that a stream of the device has now.
uint64_t mark(Device device, StreamId stream);
/// Makes later work of one stream wait for that of another one, up to a mark or (0) all that it has now.
/// Nothing happens if it has waited for as much before.
void wait(Device device, StreamId waiting, StreamId other, uint64_t mark);
/// Makes the calling thread's stream of a device wait for what its stream of another one has now.
void wait_for(Device waiting, Device other);

/// Lets the work of `reader` use the memory of `owner` without a way through the host, where the machine can.
void share_memory(Device owner, Device reader);

/// Launches on the calling thread's stream; `arguments` point to the values of the parameters.
void launch_raw(const char* name, Device device, const void* kernel, dim3 grid, dim3 block,
                size_t shared_bytes, void** arguments);

}  // namespace troupe::cuda
