// What kernels of the units that are compiled for it (CMakeLists.txt) really read and write.
#pragma once
#include <cstdint>

namespace troupe::testing {

/// Bytes of devices' memory, since the last reset; a byte that is read twice counts twice.
struct Touched {
  uint64_t read = 0, written = 0;
};
void reset_touched();
Touched touched();

}  // namespace troupe::testing
