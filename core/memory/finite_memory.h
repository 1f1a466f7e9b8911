// Kinds of devices that can say how much memory is left.
#pragma once
#include <cstddef>

#include "core/memory/device.h"

namespace troupe {

/// A Backend may be one of these, too.
class FiniteMemory {
 public:
  virtual ~FiniteMemory() = default;
  /// Bytes that allocate() may still give, if others do not take them.
  virtual size_t available(Device device) const = 0;
};

}  // namespace troupe
