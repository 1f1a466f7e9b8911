#include "core/cuda/runtime.h"

#include <atomic>
#include <cstdint>

#include "core/base/error.h"

namespace troupe::cuda {
namespace {

constexpr int kMostDevices = 64;
constexpr size_t kSharedWithoutAsking = 48 << 10;

// The stream, pool and event of a device. They are made at its first use and never destroyed: tensors may
// outlive main.
struct State {
  std::mutex mutex;
  std::atomic<cudaStream_t> stream = nullptr;
  cudaMemPool_t pool = nullptr;
  cudaEvent_t event = nullptr;  // recorded and waited for at once, under `mutex`
};

State& slot(Device device) {
  static auto* all = new State[kMostDevices];
  return all[device.index];
}

State& state(Device device) {
  if (device.index < 0 || device.index >= device_count()) [[unlikely]]
    throw_invalid("[cuda] there is no " + device.str() + ": this machine has " +
                  std::to_string(device_count()) + " GPUs");
  State& s = slot(device);
  if (s.stream.load(std::memory_order_acquire)) [[likely]]
    return s;
  std::lock_guard lock(s.mutex);
  if (s.stream.load(std::memory_order_relaxed)) return s;
  check(cudaSetDevice(device.index), "choosing the device", device);
  check(cudaDeviceGetDefaultMemPool(&s.pool, device.index), "finding the pool of memory", device);
  uint64_t keep = UINT64_MAX;
  check(cudaMemPoolSetAttribute(s.pool, cudaMemPoolAttrReleaseThreshold, &keep),
        "setting up the pool of memory", device);
  check(cudaEventCreateWithFlags(&s.event, cudaEventDisableTiming), "making an event", device);
  cudaStream_t made = nullptr;
  check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "making a stream", device);
  s.stream.store(made, std::memory_order_release);
  return s;
}

}  // namespace

int device_count() {
  static const int count = [] {
    int n = 0;
    if (cudaGetDeviceCount(&n) == cudaSuccess) return n < kMostDevices ? n : kMostDevices;
    cudaGetLastError();  // no driver, or none for this toolkit, or no GPU
    return 0;
  }();
  return count;
}

void use(Device device) {
  State& s = state(device);
  (void)s;
  int now = -1;
  if (cudaGetDevice(&now) == cudaSuccess && now == device.index) return;
  check(cudaSetDevice(device.index), "choosing the device", device);
}

cudaStream_t stream_of(Device device) { return state(device).stream.load(std::memory_order_relaxed); }
cudaMemPool_t pool_of(Device device) { return state(device).pool; }

void fail(cudaError_t error, const std::string& what, Device device) {
  cudaGetLastError();  // or the next call that is asked would report it again
  throw_error(ErrorKind::failed, "[cuda] " + what + " on " + device.str() + ": " + cudaGetErrorName(error) +
                                     ", " + cudaGetErrorString(error));
}

void check(cudaError_t error, const char* what, Device device) {
  if (error != cudaSuccess) [[unlikely]]
    fail(error, what, device);
}

void wait_for(Device waiting, Device other) {
  if (waiting == other) return;
  const cudaStream_t stream = stream_of(waiting);
  State& s = state(other);
  // A wait is for the record before it, so that the event may be recorded again at once.
  std::lock_guard lock(s.mutex);
  use(other);
  check(cudaEventRecord(s.event, s.stream.load(std::memory_order_relaxed)), "recording an event", other);
  use(waiting);
  check(cudaStreamWaitEvent(stream, s.event, 0), "waiting for another device", waiting);
}

void share_memory(Device owner, Device reader) {
  static std::atomic<bool> asked[kMostDevices][kMostDevices];
  if (owner == reader || asked[owner.index][reader.index].exchange(true, std::memory_order_relaxed)) return;
  int can = 0;
  if (cudaDeviceCanAccessPeer(&can, reader.index, owner.index) == cudaSuccess && can) {
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = reader.index;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    if (cudaMemPoolSetAccess(pool_of(owner), &access, 1) == cudaSuccess) return;
  }
  cudaGetLastError();  // copies then go through the host
}

void launch_raw(const char* name, Device device, const void* kernel, dim3 grid, dim3 block,
                size_t shared_bytes, void** arguments) {
  use(device);
  if (shared_bytes > kSharedWithoutAsking)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          name, device);
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream_of(device);
  if (const cudaError_t e = cudaLaunchKernelExC(&config, kernel, arguments); e != cudaSuccess) [[unlikely]]
    fail(e,
         "launching " + std::string(name) + " in " + std::to_string(grid.x) + " x " + std::to_string(grid.y) +
             " x " + std::to_string(grid.z) + " blocks of " + std::to_string(block.x * block.y * block.z) +
             " threads with " + std::to_string(shared_bytes) + " bytes that they share",
         device);
}

}  // namespace troupe::cuda
