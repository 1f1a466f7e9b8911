// The kinds of devices that a test program was built with.
#pragma once
#include <string>

#include "core/memory/backend.h"

namespace troupe::testing {

/// "cpu, null": as error texts list them.
inline std::string built_for() {
  std::string text = "cpu";
  for (int i = 1; i < kDeviceKinds; ++i) {
    const std::string device = Device(Device::Kind(i)).str();
    if (!device.starts_with("device kind")) text += ", " + device.substr(0, device.find(':'));
  }
  return text;
}

}  // namespace troupe::testing
