// What a device does in operations of several devices, without a vendor's header: collective/nccl/cuda does
// it by NCCL in builds for GPUs.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collective/turns/turns.h"
#include "core/memory/backend.h"
#include "core/tensor/tensor.h"

namespace troupe::internal::collective {

/// The number of the library's stream on each device; actors have those below.
inline constexpr StreamId kLibraryStream = kDeviceStreams - 1;

/// Steps that are launched together: a group of hundreds can hang.
inline constexpr size_t kMostSteps = 64;

/// A call of the library, of one device. Tensors are contiguous, on that device, of one dtype.
struct DeviceStep {
  enum Kind : uint8_t {
    all_reduce,      ///< `from` and `to` may be one tensor
    reduce,          ///< `to`: the root's
    broadcast,       ///< `from`: the root's; `to`: the others', and the root's if it is to be a copy
    all_gather,      ///< `to`: the tensors of all, one behind the other
    reduce_scatter,  ///< `from`: the same
    send,            ///< `from`, to rank `root`
    receive          ///< `to`, from rank `root`
  } kind = all_reduce;
  Tensor from = {}, to = {};
  size_t root = 0;
  /// Those of one number are launched together, at most kMostSteps; then those of the next.
  uint32_t group = 0;
};
/// What it does in one operation. All members have as many steps, of the same kinds and sizes; but of sends
/// and receives each pair has as many, of the same sizes and in the same order, and a member may have none. A
/// group that waits for a later one of another member, and that for a later one of this, would wait for ever.
struct DeviceWork {
  std::vector<DeviceStep> steps = {};
  std::string reduction = {};  ///< "sum"; empty where nothing is added
};

/// The inputs and the memory of a DeviceWork, which earlier work of the device may still write.
class DeviceInputs {
 public:
  virtual ~DeviceInputs() = default;
  /// Whether that work has ended.
  virtual bool are_there() const = 0;
};

struct LauncherEvent {
  enum Kind : uint8_t {
    ready,    ///< its inputs are there
    made_id,  ///< `text`: what the other members need to meet this one (has_id())
    ended,
    failed,         ///< `text`: why. Its tensors are kept as long as the device may use them
    library_failed  ///< the same, by what the library says: which may come from the end of a member
  } kind = ready;
  DeviceOperation operation = {};
  std::string text = {};
};

/// Of one device; all of it is called by one thread. poll() goes on with everything, and waits for nothing
/// but the library.
class Launcher {
 public:
  virtual ~Launcher() = default;  ///< ends what goes on
  /// The device is to do `work` when it has its turn.
  virtual void expect(const DeviceOperation& operation, DeviceWork work,
                      std::unique_ptr<DeviceInputs> inputs) = 0;
  /// It will not have one.
  virtual void forget(DeviceOperationId id) = 0;
  /// It has its turn, behind those that had one before.
  virtual void launch(DeviceOperationId id) = 0;
  virtual void has_id(DeviceOperationId id, const std::string& text) = 0;
  /// It had its turn and failed elsewhere: what it shares with its members ends.
  virtual void drop(DeviceOperationId id) = 0;
  /// What is shared with that worker ends at once.
  virtual void lose(WorkerId worker) = 0;
  /// What has happened; `moved`: whether anything was done.
  virtual std::vector<LauncherEvent> poll(bool& moved) = 0;
  /// Operations, and what is being ended.
  virtual size_t open() const = 0;
};

/// The library that operations of several devices need, as this process has it.
class DeviceLibrary {
 public:
  /// All members have the same, not 0. 0: why() says why it is not used.
  virtual int version() const = 0;
  virtual std::string why() const = 0;
  virtual bool has(Device device) const = 0;
  /// A text for the device that another process of the host has for it, too.
  virtual std::string device_name(Device device) const = 0;
  /// For the calling thread's stream: what it works on now is waited for.
  virtual std::unique_ptr<DeviceInputs> inputs_of(const DeviceWork& work, Device device) const = 0;
  virtual std::unique_ptr<Launcher> make_launcher(WorkerDevice here, Device device) const = 0;

 protected:
  ~DeviceLibrary() = default;  // nobody owns it: it is there as long as the process
};

/// Null in builds without GPUs.
const DeviceLibrary* device_library();
/// Makes it known, once; it is never destroyed.
void set_device_library(const DeviceLibrary& library);

/// Before the library is loaded: on which of this host's addresses its sockets may listen.
void set_library_host(const std::string& host);
/// The interface that has the address, or "" if none has; "lo" unless a host was set.
std::string library_interface();
/// All interfaces of this host.
std::vector<std::string> host_interfaces();

}  // namespace troupe::internal::collective
