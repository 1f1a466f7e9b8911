// A device without hardware: its memory cannot be touched by the host, and its kernels run the CPU's on it.
#pragma once
#include "core/memory/device.h"
#include "core/tensor/tensor.h"

namespace troupe::testing {

/// The kind "null", with two devices.
inline constexpr Device::Kind kNull{7};
inline constexpr Device null0{kNull, 0}, null1{kNull, 1};

/// Makes the kind known, as the constructor of a device's folder does. May be called again.
void install_null_device();

/// Bytes that tensors have on both devices.
size_t null_bytes_in_use();

/// While one is alive, the devices have no memory for tensors above so many bytes.
class NullMemoryLimit {
 public:
  explicit NullMemoryLimit(size_t bytes);
  ~NullMemoryLimit();
  NullMemoryLimit(const NullMemoryLimit&) = delete;
};

}  // namespace troupe::testing
