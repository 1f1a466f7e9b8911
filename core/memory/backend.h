// Backend: memory and elements of one kind of device. docs/contributing/add-a-device.md says how a kind is
// added.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/memory/device.h"
#include "core/memory/device_clock.h"

namespace troupe {

class PinnedBuffer;
class Scalar;
class Tensor;

/// Numbers an order of work on a device: that of an actor, or 0 for threads outside actors.
using StreamId = uint8_t;
inline constexpr int kDeviceStreams = 32;
/// A number for a new actor, from 1. Many actors share them.
StreamId next_device_stream();

/// The state of an allocator, in bytes, for metrics and tests.
struct AllocatorStats {
  size_t in_use = 0;                ///< handed out now
  size_t cached = 0;                ///< kept for reuse
  size_t lent = 0;                  ///< of in_use, what other processes have
  size_t borrowed = 0;              ///< of other processes (Storage::borrow), beside in_use
  size_t pinned = 0;                ///< of the host's memory, in use for copies from and to this device
  uint64_t system_allocations = 0;  ///< times that the system was asked
};

/// Which sides of a copy are the host's memory.
enum class CopyWay : uint8_t { within, from_host, to_host };

/// A kind of device. All functions may be called from any thread. Errors name the device. Work that they ask
/// for is on current_stream(), which may be behind the host.
class Backend {
 public:
  virtual ~Backend() = default;

  /// "cuda": what stands before the colon in the names of its devices.
  virtual const char* name() const = 0;
  /// How many devices there are; 0 where the program was built with the kind and the machine has none.
  virtual int devices() const = 0;
  /// Why there are none, for error texts: "no NVIDIA driver is installed"; "" where there are some.
  virtual std::string why_none() const { return ""; }
  /// One line about a device, for error texts and logs: "NVIDIA H100, 80 GiB".
  virtual std::string describe(Device device) const = 0;

  /// Uninitialized bytes (maybe 0), 64-byte aligned. Throws std::bad_alloc.
  virtual void* allocate(size_t bytes, Device device) = 0;
  /// Once the work that `stream` has now is done.
  virtual void free(void* data, size_t bytes, Device device, StreamId stream) noexcept = 0;
  /// Copies bytes that do not overlap. to_host waits until they have arrived.
  virtual void copy(void* to, const void* from, size_t bytes, CopyWay way, Device device) = 0;
  /// Between two devices of this kind; by way of the host unless the kind has a shorter one.
  virtual void copy_peer(void* to, Device to_device, const void* from, Device from_device, size_t bytes);
  virtual void fill(void* to, int byte, size_t bytes, Device device) = 0;
  /// Memory of the host for copies that nobody waits for; null if the kind has none, or no more of it: then
  /// copy() and ordinary memory do.
  virtual std::shared_ptr<PinnedBuffer> pinned_buffer(size_t /*bytes*/, Device) { return nullptr; }

  /// The stream that the calling thread works on, below kDeviceStreams; 0 on a device that has one only.
  virtual StreamId current_stream(Device) const { return 0; }
  /// A number, not 0, for all that is on `stream` now.
  virtual uint64_t mark(Device, StreamId) { return 1; }
  /// Lets later work of `waiting` wait for the work of `other` up to a mark, or for all that is there now
  /// (0).
  virtual void wait(Device, StreamId /*waiting*/, StreamId /*other*/, uint64_t /*mark*/) {}
  /// Waits on the host until current_stream() is done.
  virtual void synchronize(Device) {}
  /// For the calling thread's work from now on; by the host's clock where the kind has none of its own.
  virtual std::unique_ptr<DeviceClock> clock(Device device);

  /// Copies elements of one shape: any strides, any dtypes (converted), any overlap. Both on one device.
  virtual void copy_elements(const Tensor& to, const Tensor& from) = 0;
  virtual void fill_elements(const Tensor& to, const Scalar& value) = 0;
  /// out = a + b, of one shape and dtype. `out` is contiguous, or it is `a`: an element that it has several
  /// times is then added to as often.
  virtual void add_elements(const Tensor& out, const Tensor& a, const Tensor& b) = 0;

  virtual AllocatorStats stats(Device) const { return {}; }
  virtual void release_cached(Device) {}
};

inline constexpr int kDeviceKinds = 8;

/// Makes a kind known to the program, once, before its first tensor. `backend` is never destroyed.
void set_backend(Device::Kind kind, Backend& backend);
/// The CPU as one of them (core/tensor/cpu_backend.cpp).
Backend& cpu_backend();
Backend& other_backend_of(Device device);
/// The text of an error: "there is no cuda:7: this machine has 2 devices of the kind cuda".
std::string no_such_device(const std::string& name, const Backend& kind);
/// `unimplemented`, naming the device, if the program was not built with its kind.
inline Backend& backend_of(Device device) {
  return device.is_cpu() ? cpu_backend() : other_backend_of(device);
}
/// A device of another machine by its name: whether this one has it is not asked. `invalid` for a text that
/// names none, `unimplemented` for a kind that the program was not built with.
Device device_named(const std::string& name);
/// Whether it was, and the machine has that device.
bool has_device(Device device);
/// All devices that there are, the CPU first.
std::vector<Device> all_devices();

AllocatorStats allocator_stats(Device device = cpu);
/// Gives the cached blocks back to the system. On the CPU the small ones stay that other threads keep for
/// themselves (less than 1 MiB each).
void release_cached_memory(Device device = cpu);

}  // namespace troupe
