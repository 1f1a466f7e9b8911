// GPUs as devices: memory from the runtime's pools, in the order of streams.
#include <array>
#include <atomic>
#include <new>

#include "core/base/error.h"
#include "core/base/out_of_memory.h"
#include "core/cuda/elements.h"
#include "core/cuda/event_clock.h"
#include "core/cuda/install.h"
#include "core/cuda/pinned.h"
#include "core/cuda/runtime.h"
#include "core/memory/backend.h"
#include "core/memory/finite_memory.h"

namespace troupe {
namespace {

using cuda::check, cuda::fail, cuda::OnStream, cuda::pool_of, cuda::stream_of, cuda::use;

const char* way_text(CopyWay way) {
  return way == CopyWay::from_host ? " bytes to the device"
         : way == CopyWay::to_host ? " bytes to the host"
                                   : " bytes";
}

uint64_t pool_bytes(cudaMemPoolAttr what, Device device) {
  uint64_t bytes = 0;
  check(cudaMemPoolGetAttribute(pool_of(device), what, &bytes), "asking the pool of memory", device);
  return bytes;
}

class CudaBackend final : public Backend, public FiniteMemory {
 public:
  const char* name() const override { return "cuda"; }
  int devices() const override { return cuda::device_count(); }
  std::string why_none() const override { return cuda::why_none(); }
  std::string describe(Device device) const override {
    cudaDeviceProp p{};
    check(cudaGetDeviceProperties(&p, device.index), "asking what it is", device);
    return std::string(p.name) + ", " + std::to_string(p.totalGlobalMem >> 30) + " GiB, compute capability " +
           std::to_string(p.major) + "." + std::to_string(p.minor);
  }

  void* allocate(size_t bytes, Device device) override {
    const OnStream stream(device);
    void* data = nullptr;
    const size_t asked = bytes ? bytes : 1;
    cudaError_t e = cudaMallocAsync(&data, asked, stream);
    if (e == cudaErrorMemoryAllocation) [[unlikely]] {
      // What the pool keeps in pieces may do as a whole, once the work that frees it is done.
      cudaGetLastError();
      check(cudaDeviceSynchronize(), "waiting for memory", device);
      check(cudaMemPoolTrimTo(pool_of(device), 0), "giving memory back", device);
      e = cudaMallocAsync(&data, asked, stream);
    }
    if (e == cudaErrorMemoryAllocation) out_of_memory(bytes, device);
    if (e != cudaSuccess) fail(e, "allocating " + std::to_string(bytes) + " bytes", device);
    allocations_[static_cast<size_t>(device.index)].fetch_add(1, std::memory_order_relaxed);
    return data;
  }

  void free(void* data, size_t, Device device, StreamId stream) noexcept override {
    // The process may be ending, or the device have failed: the memory goes with them.
    try {
      if (cudaFreeAsync(data, cuda::stream_of(device, stream)) != cudaSuccess) cudaGetLastError();
    } catch (const std::exception&) {
    }
  }

  void copy(void* to, const void* from, size_t bytes, CopyWay way, Device device) override {
    if (bytes == 0) return;
    const OnStream stream(device);
    cudaError_t e = cudaMemcpyAsync(to, from, bytes, kind_of(way), stream);
    // From pageable memory the runtime copies before it returns; pinned memory it reads later.
    if (e == cudaSuccess && (way == CopyWay::to_host || (way == CopyWay::from_host && is_pinned(from))))
      e = cudaStreamSynchronize(stream);
    if (e != cudaSuccess) fail(e, "copying " + std::to_string(bytes) + way_text(way), device);
  }

  void copy_peer(void* to, Device to_device, const void* from, Device from_device, size_t bytes) override {
    if (bytes == 0) return;
    cuda::share_memory(from_device, to_device);
    cuda::wait_for(to_device, from_device);  // the source is written
    {
      const OnStream stream(to_device);
      const cudaError_t e = cudaMemcpyPeerAsync(to, to_device.index, from, from_device.index, bytes, stream);
      if (e != cudaSuccess)
        fail(e, "copying " + std::to_string(bytes) + " bytes from " + from_device.str(), to_device);
    }
    cuda::wait_for(from_device, to_device);  // it may be freed and written again
  }

  void fill(void* to, int byte, size_t bytes, Device device) override {
    if (bytes == 0) return;
    const OnStream stream(device);
    const cudaError_t e = cudaMemsetAsync(to, byte, bytes, stream);
    if (e != cudaSuccess) fail(e, "filling " + std::to_string(bytes) + " bytes", device);
  }

  std::shared_ptr<PinnedBuffer> pinned_buffer(size_t bytes, Device device) override {
    return cuda::pinned_buffer(bytes, device);
  }

  StreamId current_stream(Device) const override { return cuda::stream_number(); }
  uint64_t mark(Device device, StreamId stream) override { return cuda::mark(device, stream); }
  void wait(Device device, StreamId waiting, StreamId other, uint64_t mark) override {
    cuda::wait(device, waiting, other, mark);
  }
  void synchronize(Device device) override {
    check(cudaStreamSynchronize(stream_of(device)), "waiting for its work", device);
  }

  std::unique_ptr<DeviceClock> clock(Device device) override { return cuda::event_clock(device); }

  void copy_elements(const Tensor& to, const Tensor& from) override { cuda::copy_elements(to, from); }
  void fill_elements(const Tensor& to, const Scalar& value) override { cuda::fill_elements(to, value); }
  void add_elements(const Tensor& out, const Tensor& a, const Tensor& b) override {
    cuda::add_elements(out, a, b);
  }

  AllocatorStats stats(Device device) const override {
    const uint64_t used = pool_bytes(cudaMemPoolAttrUsedMemCurrent, device);
    const uint64_t reserved = pool_bytes(cudaMemPoolAttrReservedMemCurrent, device);
    return {.in_use = used,
            .cached = reserved > used ? reserved - used : 0,
            .pinned = cuda::pinned_in_use(device),
            .system_allocations =
                allocations_[static_cast<size_t>(device.index)].load(std::memory_order_relaxed)};
  }
  size_t available(Device device) const override {
    use(device);
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for its memory", device);
    return free + stats(device).cached;
  }
  void release_cached(Device device) override {
    use(device);
    check(cudaDeviceSynchronize(), "waiting for its work", device);
    check(cudaMemPoolTrimTo(pool_of(device), 0), "giving memory back", device);
    cuda::release_pinned(device);
  }

 private:
  static cudaMemcpyKind kind_of(CopyWay way) {
    switch (way) {
      case CopyWay::from_host:
        return cudaMemcpyHostToDevice;
      case CopyWay::to_host:
        return cudaMemcpyDeviceToHost;
      case CopyWay::within:
        return cudaMemcpyDeviceToDevice;
    }
    return cudaMemcpyDefault;
  }
  static bool is_pinned(const void* host) {
    cudaPointerAttributes a{};
    if (cudaPointerGetAttributes(&a, host) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    return a.type != cudaMemoryTypeUnregistered;
  }
  [[noreturn]] static void out_of_memory(size_t bytes, Device device) {
    cudaGetLastError();
    const uint64_t used = pool_bytes(cudaMemPoolAttrUsedMemCurrent, device);
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
    throw OutOfMemory("[cuda] out of memory on " + device.str() + ": " + std::to_string(bytes) +
                      " bytes asked for, " + std::to_string(used) + " used by this process, " +
                      std::to_string(free) + " free of " + std::to_string(total));
  }

  std::array<std::atomic<uint64_t>, 128> allocations_{};
};

}  // namespace

void install_cuda() {
  static auto* backend = new CudaBackend;  // tensors may outlive main
  set_backend(kCuda, *backend);
}

}  // namespace troupe

// The build asks the linker for this name, so that a program that links the library has the device.
extern "C" const bool troupe_core_cuda;
const bool troupe_core_cuda = (troupe::install_cuda(), true);
