// The time between two events of a stream.
#pragma once
#include <memory>

#include "core/memory/device.h"
#include "core/memory/device_clock.h"

namespace troupe::cuda {

std::unique_ptr<DeviceClock> event_clock(Device device);

}  // namespace troupe::cuda
