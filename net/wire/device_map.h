// Where tensors of this worker's devices arrive at another one.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "core/memory/device.h"
#include "core/value/value.h"

namespace troupe::internal::net {

class TensorWays;

/// Devices of this worker and of another one that stand for each other, in both directions. Empty: those of
/// the same name do.
class DeviceMap {
 public:
  using Pairs = std::vector<std::pair<Device, Device>>;  ///< here, there

  DeviceMap() = default;
  /// `invalid` if a device comes twice on one side, or is the CPU. `between`: "w0 to w2", for error texts.
  DeviceMap(Pairs pairs, std::string between);

  /// `invalid` for a device that an explicit map does not have.
  Device there(Device here) const;
  const Pairs& pairs() const { return pairs_; }
  DeviceMap inverse(std::string between) const;

 private:
  Pairs pairs_;
  std::string between_;
};

/// How tensors of devices are sent.
struct DevicePlacing {
  bool in_memory = false;  ///< the connection takes memory of devices as it is (Transport::carries_devices)
  const DeviceMap* map = nullptr;  ///< null: to devices of the same name
  TensorWays* ways = nullptr;      ///< other ways than the connection; null: there is none
  WorkerId to = kNoWorker;         ///< where these lead

  Device there(Device here) const { return map ? map->there(here) : here; }
};

}  // namespace troupe::internal::net
