// The GPUs of this machine as devices of the program.
#pragma once
#include "core/memory/device.h"

namespace troupe {

inline constexpr Device::Kind kCuda{1};

/// Makes "cuda" known as a kind of device. Without a driver or a GPU it has 0 devices. Again does nothing.
void install_cuda();

}  // namespace troupe
