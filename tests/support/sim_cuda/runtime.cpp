// The functions of CUDA's runtime that the program calls, with the signatures of its own header.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/support/sim_cuda/runtime_call.h"

using namespace sim_cuda;

namespace {

// What may synchronize the device: it waits for kernels that wait for other devices.
void may_wait(Machine& m, const char* who) {
  m.run_until([&m] { return !m.is_kept(current_device); }, who);
}

bool finish(Machine& m, Stream& s, const char* who) {
  ++m.counters.synchronizations;
  const bool done = m.run_until([&] { return s.tasks.empty(); }, who);
  if (done) m.host_waited_for(s.clock);
  return done;
}

Memory& pool_memory(Machine& m, cudaMemPool_t pool) {
  return *m.memories.at(reinterpret_cast<uintptr_t>(pool) - 1);
}

// Where a copy's side lies when the stream comes to it.
std::byte* side(Machine& m, const void* p, size_t bytes, bool written) {
  if (Memory* memory = m.memory_of(p))
    return static_cast<std::byte*>(memory->seen(p, bytes, written, written ? "writes to" : "reads"));
  return static_cast<std::byte*>(const_cast<void*>(p));
}

void copy_now(Machine& m, void* to, const void* from, size_t bytes) {
  std::memcpy(side(m, to, bytes, true), side(m, from, bytes, false), bytes);
}

cudaError_t enqueue_copy(Machine& m, Stream& s, void* to, const void* from, size_t bytes, const char* name) {
  ++m.counters.copies;
  m.keep({.kind = sim_cuda::Asked::Kind::copy, .name = name, .read = bytes, .written = bytes});
  if (m.dry) {
    if (!m.memory_of(to)) std::memset(to, 0, bytes);
    return cudaSuccess;
  }
  const bool from_host = !m.memory_of(from), to_host = !m.memory_of(to);
  if (from_host && !m.is_pinned(from)) {  // read before the call returns
    const auto* first = static_cast<const std::byte*>(from);
    auto staged = std::make_shared<std::vector<std::byte>>(first, first + bytes);
    m.add(s, {name, [&m, to, staged, bytes] { copy_now(m, to, staged->data(), bytes); }});
    return cudaSuccess;
  }
  if (to_host && m.is_pinned(to)) std::memset(to, sim_cuda::kPoison, bytes);  // until the stream comes to it
  m.add(s, {name, [&m, to, from, bytes] { copy_now(m, to, from, bytes); }});
  if (to_host && !m.is_pinned(to) && m.run_until([&] { return s.tasks.empty(); }, name))
    m.host_waited_for(s.clock);
  return cudaSuccess;
}

}  // namespace

// ---- devices
cudaError_t cudaGetDeviceCount(int* count) {
  Machine& m = Machine::get();
  *count = static_cast<int>(m.memories.size());
  return told(m.no_devices);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = Machine::get().driver;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return call([&](Machine& m) {
    if (device < 0 || static_cast<size_t>(device) >= m.memories.size()) return cudaErrorInvalidDevice;
    current_device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call([&](Machine&) {
    *device = current_device;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* name, int length, int device) {
  return call([&](Machine& m) {
    if (device < 0 || static_cast<size_t>(device) >= m.memories.size()) return cudaErrorInvalidDevice;
    std::snprintf(name, static_cast<size_t>(length), "0000:%02x:00.0", static_cast<unsigned>(device));
    return cudaSuccess;
  });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  return call([&](Machine& m) {
    if (device < 0 || static_cast<size_t>(device) >= m.memories.size()) return cudaErrorInvalidDevice;
    *p = {};
    std::snprintf(p->name, sizeof p->name, "simulated GPU %d", device);
    p->totalGlobalMem = m.memories[static_cast<size_t>(device)]->limit;
    p->major = 8;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->multiProcessorCount = 4;
    p->sharedMemPerBlock = 48 << 10;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  return call([&](Machine&) {
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount:
        *value = 4;
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = 163 << 10;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor:
        *value = 8;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call([&](Machine&) {
    *can = device != peer;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call([&](Machine& m) {
    ++m.counters.synchronizations;
    m.run_until(
        [&] {
          return std::none_of(m.streams.begin(), m.streams.end(), [](const auto& s) {
            return s.second->device == current_device && !s.second->tasks.empty();
          });
        },
        "cudaDeviceSynchronize");
    for (const auto& [stream, s] : m.streams)
      if (s->device == current_device) m.host_waited_for(s->clock);
    return cudaSuccess;
  });
}

// ---- errors
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
#define TROUPE_NAME(x) \
  case x:              \
    return #x;
    TROUPE_NAME(cudaSuccess)
    TROUPE_NAME(cudaErrorInvalidValue)
    TROUPE_NAME(cudaErrorMemoryAllocation)
    TROUPE_NAME(cudaErrorInvalidConfiguration)
    TROUPE_NAME(cudaErrorInsufficientDriver)
    TROUPE_NAME(cudaErrorNoDevice)
    TROUPE_NAME(cudaErrorInvalidDevice)
    TROUPE_NAME(cudaErrorInvalidResourceHandle)
    TROUPE_NAME(cudaErrorNotReady)
    TROUPE_NAME(cudaErrorIllegalAddress)
    TROUPE_NAME(cudaErrorLaunchTimeout)
    TROUPE_NAME(cudaErrorNotSupported)
#undef TROUPE_NAME
    default:
      return "cudaErrorUnknown";
  }
}

const char* cudaGetErrorString(cudaError_t e) {
  static thread_local std::string text;
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  text = e == m.sticky && !m.fault.empty() ? m.fault : "error " + std::to_string(e) + " of the simulation";
  return text.c_str();
}

// ---- memory
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return call([&](Machine& m) {
    if (device < 0 || static_cast<size_t>(device) >= m.memories.size()) return cudaErrorInvalidDevice;
    *pool = reinterpret_cast<cudaMemPool_t>(static_cast<uintptr_t>(device) + 1);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void*) {
  return call([&](Machine&) {
    return attribute == cudaMemPoolAttrReleaseThreshold ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return call([&](Machine& m) {
    const Memory& memory = pool_memory(m, pool);
    auto& out = *static_cast<uint64_t*>(value);
    switch (attribute) {
      case cudaMemPoolAttrUsedMemCurrent:
        out = memory.used;
        return cudaSuccess;
      case cudaMemPoolAttrUsedMemHigh:
        out = memory.used_high;
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemCurrent:
        out = memory.reserved;
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemHigh:
        out = memory.reserved_high;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) {
  return call([&](Machine&) { return cudaSuccess; });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  return call([&](Machine& m) {
    may_wait(m, "cudaMemPoolTrimTo");
    pool_memory(m, pool).trim();
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&](Machine& m) {
    const Memory& memory = *m.memories[static_cast<size_t>(current_device)];
    *total = memory.limit;
    *free = memory.limit > memory.reserved ? memory.limit - memory.reserved : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaMallocAsync(void** data, size_t bytes, cudaStream_t handle) {
  return on_stream(handle, [&](Machine& m, Stream& s) {
    ++m.counters.allocations;
    if (bytes == 0) return cudaErrorInvalidValue;
    if (m.failing_allocation && --m.failing_allocation == 0) return cudaErrorMemoryAllocation;
    Memory* memory = m.memories[static_cast<size_t>(s.device)].get();
    void* taken = memory->take(bytes, handle);
    if (!taken) return cudaErrorMemoryAllocation;
    m.add(s, {"an allocation", [memory, taken, bytes] { memory->begin(taken, bytes); }, nullptr, 0, true});
    *data = taken;
    return cudaSuccess;
  });
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t handle) {
  Machine& m = Machine::get();
  std::lock_guard lock(m.mutex);
  if (!data) return cudaSuccess;
  Stream* s = m.find(handle);
  Memory* memory = m.memory_of(data);
  ++m.counters.frees;
  if (!s) return told(cudaErrorInvalidResourceHandle);
  if (!memory || !memory->give(data, handle)) {
    m.note(cudaErrorIllegalAddress, "cudaFreeAsync of what is not allocated, or freed before");
    return told(cudaErrorInvalidValue);
  }
  m.add(*s, {"a free", [memory, data] { memory->end(data); }, nullptr, 0, true});
  return told(m.sticky);
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return call([&](Machine& m) {
    may_wait(m, "cudaHostAlloc");
    if (m.pinned_bytes + bytes > m.pinned_limit) return cudaErrorMemoryAllocation;
    *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    m.pinned[*data] = bytes;
    m.pinned_bytes += bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* data) {
  return call([&](Machine& m) {
    if (!m.pinned.contains(data)) return cudaErrorInvalidValue;
    m.run_all("cudaFreeHost");
    m.pinned_bytes -= m.pinned.at(data);
    m.pinned.erase(data);
    std::free(data);
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  return call([&](Machine& m) {
    *a = {};
    a->type = m.memory_of(p)   ? cudaMemoryTypeDevice
              : m.is_pinned(p) ? cudaMemoryTypeHost
                               : cudaMemoryTypeUnregistered;
    for (size_t i = 0; i < m.memories.size(); ++i)
      if (m.memories[i]->holds(p)) a->device = static_cast<int>(i);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  return on_stream(handle, [&](Machine& m, Stream& s) {
    const bool from_device = m.memory_of(from), to_device = m.memory_of(to);
    const bool wants_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    const bool wants_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyDefault && (from_device != wants_from || to_device != wants_to))
      return cudaErrorInvalidValue;
    return enqueue_copy(m, s, to, from, bytes, "cudaMemcpyAsync");
  });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t handle) {
  return on_stream(handle, [&](Machine& m, Stream& s) {
    const auto is_of = [&](const void* p, int device) {
      return device >= 0 && static_cast<size_t>(device) < m.memories.size() &&
             m.memories[static_cast<size_t>(device)]->holds(p);
    };
    if (!is_of(to, to_device) || !is_of(from, from_device)) return cudaErrorInvalidValue;
    return enqueue_copy(m, s, to, from, bytes, "cudaMemcpyPeerAsync");
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t handle) {
  return on_stream(handle, [&](Machine& m, Stream& s) {
    Memory* memory = m.memory_of(to);
    if (!memory || s.device != current_device) return cudaErrorInvalidValue;
    ++m.counters.fills;
    m.keep({.kind = sim_cuda::Asked::Kind::fill, .name = "fill", .written = bytes});
    if (m.dry) return cudaSuccess;
    m.add(s, {"cudaMemsetAsync", [memory, to, value, bytes] {
                std::memset(memory->seen(to, bytes, true, "fills"), value, bytes);
              }});
    return cudaSuccess;
  });
}

// ---- streams and events
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return call([&](Machine& m) {
    *stream = new_handle<cudaStream_t>(m);
    auto made = std::make_unique<Stream>();
    made->device = current_device;
    made->number = m.streams_made++;
    made->priority = m.eager ? 0 : m.random();
    m.streams[*stream] = std::move(made);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return on_stream(handle, [&](Machine& m, Stream& s) {
    m.run_until([&] { return s.tasks.empty(); }, "cudaStreamDestroy");  // the host knows nothing by that
    m.streams.erase(handle);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return on_stream(handle, [&](Machine& m, Stream& s) {
    finish(m, s, "cudaStreamSynchronize");
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return on_stream(handle, [&](Machine& m, Stream& s) {
    if (!s.tasks.empty()) m.run_some();
    if (!s.tasks.empty()) return cudaErrorNotReady;
    m.host_waited_for(s.clock);
    return cudaSuccess;
  });
}

// ---- kernels: the launcher of core/cuda/launch.h comes by sim_cuda::launch, which knows the types of
// arguments
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) {
  return told(cudaErrorNotSupported);
}
