#include "core/cuda/runtime.h"

#include <atomic>
#include <cstdint>

#include "core/base/call_frame.h"
#include "core/base/error.h"
#include "core/base/mutex.h"

namespace troupe::cuda {
namespace {

constexpr int kMostDevices = 64;
constexpr size_t kSharedWithoutAsking = 48 << 10;

// A stream, and events that say how far it is. A wait is for the record before it, so that an event may be
// recorded again while others wait for it.
struct StreamState {
  std::atomic<cudaStream_t> stream = nullptr;
  std::atomic<uint64_t> count = 1;  // of pieces of work that were put on it
  internal::Mutex mutex;            // of what follows
  struct Record {
    cudaEvent_t event = nullptr;
    uint64_t covers = 0;  // the count when it was recorded
  };
  static constexpr size_t kRecords = 16;
  Record records[kRecords];  // a ring: `newest`, and those before it
  size_t newest = 0;
  std::atomic<uint64_t> waited[kDeviceStreams] = {};  // the count of another stream that it has waited for
};

// The pool and streams of a device. They are made at its first use and never destroyed: tensors may outlive
// main.
struct State {
  internal::Mutex mutex;
  std::atomic<bool> ready = false;
  cudaMemPool_t pool = nullptr;
  StreamState streams[kDeviceStreams];
};

State& slot(Device device) {
  static std::atomic<State*> all[kMostDevices];
  auto& at = all[device.index];
  State* there = at.load(std::memory_order_acquire);
  if (there) return *there;
  auto* made = new State;
  if (at.compare_exchange_strong(there, made)) return *made;
  delete made;
  return *there;
}

State& state(Device device) {
  if (device.index < 0 || device.index >= device_count()) [[unlikely]]
    throw_invalid("[cuda] " + no_such_device(device.str(), backend_of(device)));
  State& s = slot(device);
  if (s.ready.load(std::memory_order_acquire)) [[likely]]
    return s;
  std::lock_guard lock(s.mutex);
  if (s.ready.load(std::memory_order_relaxed)) return s;
  check(cudaSetDevice(device.index), "choosing the device", device);
  check(cudaDeviceGetDefaultMemPool(&s.pool, device.index), "finding the pool of memory", device);
  uint64_t keep = UINT64_MAX;
  check(cudaMemPoolSetAttribute(s.pool, cudaMemPoolAttrReleaseThreshold, &keep),
        "setting up the pool of memory", device);
  s.ready.store(true, std::memory_order_release);
  return s;
}

StreamState& stream_state(Device device, StreamId number) {
  State& s = state(device);
  StreamState& stream = s.streams[number];
  if (stream.stream.load(std::memory_order_acquire)) [[likely]]
    return stream;
  std::lock_guard lock(s.mutex);
  if (stream.stream.load(std::memory_order_relaxed)) return stream;
  check(cudaSetDevice(device.index), "choosing the device", device);
  for (auto& r : stream.records)
    if (!r.event)
      check(cudaEventCreateWithFlags(&r.event, cudaEventDisableTiming), "making an event", device);
  cudaStream_t made = nullptr;
  check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "making a stream", device);
  stream.stream.store(made, std::memory_order_release);
  return stream;
}

// After the work: who sees the count finds it on the stream.
void put_on(StreamState& stream) { stream.count.fetch_add(1, std::memory_order_release); }

// A record of all that is on the stream; with its mutex.
const StreamState::Record& record(StreamState& s, Device device) {
  const uint64_t now = s.count.load(std::memory_order_acquire);
  if (s.records[s.newest].covers == now) return s.records[s.newest];
  const size_t next = (s.newest + 1) % StreamState::kRecords;
  use(device);
  check(cudaEventRecord(s.records[next].event, s.stream.load(std::memory_order_relaxed)),
        "recording an event", device);
  s.records[next].covers = now;
  s.newest = next;
  return s.records[next];
}

// The oldest record that covers a mark; with the mutex of its stream.
const StreamState::Record& record_of(StreamState& s, Device device, uint64_t mark) {
  const StreamState::Record* found = nullptr;
  for (const auto& r : s.records)
    if (r.covers >= mark && (!found || r.covers < found->covers)) found = &r;
  return mark != 0 && found ? *found : record(s, device);
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

std::string why_none() {
  if (device_count() > 0) return "";
  const auto version = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
  int driver = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || cudaRuntimeGetVersion(&runtime) != cudaSuccess)
    cudaGetLastError();
  if (driver == 0) return "no NVIDIA driver is installed";
  if (driver < runtime)
    return "the NVIDIA driver is for CUDA " + version(driver) + ", and this program needs " +
           version(runtime) + ": update the driver";
  return "the NVIDIA driver sees no GPU";
}

void use(Device device) {
  state(device);
  int now = -1;
  if (cudaGetDevice(&now) == cudaSuccess && now == device.index) return;
  check(cudaSetDevice(device.index), "choosing the device", device);
}

StreamId stream_number() { return frame().device_stream; }
cudaStream_t stream_of(Device device, StreamId number) {
  return stream_state(device, number).stream.load(std::memory_order_relaxed);
}
cudaStream_t stream_of(Device device) { return stream_of(device, stream_number()); }
cudaMemPool_t pool_of(Device device) { return state(device).pool; }

OnStream::OnStream(Device device)
    : device_(device), number_(stream_number()), stream_(stream_of(device, number_)) {
  use(device);
}
OnStream::~OnStream() { put_on(slot(device_).streams[number_]); }

void fail(cudaError_t error, const std::string& what, Device device) {
  cudaGetLastError();  // or the next call that is asked would report it again
  throw_error(ErrorKind::failed, "[cuda] " + what + " on " + device.str() + ": " + cudaGetErrorName(error) +
                                     ", " + cudaGetErrorString(error));
}

void check(cudaError_t error, const char* what, Device device) {
  if (error != cudaSuccess) [[unlikely]]
    fail(error, what, device);
}

uint64_t mark(Device device, StreamId stream) {
  StreamState& s = stream_state(device, stream);
  std::lock_guard lock(s.mutex);
  return record(s, device).covers;
}

void wait(Device device, StreamId waiting, StreamId other, uint64_t mark) {
  StreamState &w = stream_state(device, waiting), &o = stream_state(device, other);
  auto& waited = w.waited[other];
  const uint64_t wanted = mark ? mark : o.count.load(std::memory_order_acquire);
  if (waited.load(std::memory_order_acquire) >= wanted) return;
  std::lock_guard lock(o.mutex);
  const StreamState::Record r = record_of(o, device, mark);
  use(device);
  check(cudaStreamWaitEvent(w.stream.load(std::memory_order_relaxed), r.event, 0),
        "waiting for another stream", device);
  put_on(w);
  // Others may have come further meanwhile.
  for (uint64_t before = waited; before < r.covers && !waited.compare_exchange_weak(before, r.covers);) {
  }
}

void wait_for(Device waiting, Device other) {
  if (waiting == other) return;
  StreamState &w = stream_state(waiting, stream_number()), &o = stream_state(other, stream_number());
  std::lock_guard lock(o.mutex);
  const StreamState::Record& r = record(o, other);
  use(waiting);
  check(cudaStreamWaitEvent(w.stream.load(std::memory_order_relaxed), r.event, 0),
        "waiting for another device", waiting);
  put_on(w);
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
  const OnStream stream(device);
  if (shared_bytes > kSharedWithoutAsking)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          name, device);
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  if (const cudaError_t e = cudaLaunchKernelExC(&config, kernel, arguments); e != cudaSuccess) [[unlikely]]
    fail(e,
         "launching " + std::string(name) + " in " + std::to_string(grid.x) + " x " + std::to_string(grid.y) +
             " x " + std::to_string(grid.z) + " blocks of " + std::to_string(block.x * block.y * block.z) +
             " threads with " + std::to_string(shared_bytes) + " bytes that they share",
         device);
}

}  // namespace troupe::cuda
