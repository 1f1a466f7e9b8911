// Memory for snapshots of what lies on GPUs.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include "autograd/distributed/optim/owned_state.h"
#include "core/memory/device.h"

namespace troupe::internal {

/// A snapshot shares the memory of what it has, and training takes new memory for what it writes before the
/// snapshot is on the disk. Where a device has not so much left, the host has the snapshot at once, in pinned
/// memory as long as there is some. Thread-safe. What a device was counted to need counts until the end.
class SnapshotRoom {
 public:
  SnapshotRoom() = default;
  ~SnapshotRoom();
  SnapshotRoom(const SnapshotRoom&) = delete;
  SnapshotRoom& operator=(const SnapshotRoom&) = delete;

  /// The same elements, where there is room for them. Of lazy copies, in the mailbox of the actor that writes
  /// to what they are of. Throws std::bad_alloc where the host, too, has not so much.
  OwnedState take(OwnedState snapshot);

 private:
  bool shares(Device device, size_t bytes);

  std::vector<std::pair<Device, size_t>> counted_;  // guarded by the mutex of all rooms
};

}  // namespace troupe::internal
