// What tests of GPUs need.
#pragma once
#include <string>

#include "core/cuda/install.h"
#include "core/memory/backend.h"
#include "tests/support/skip.h"

namespace troupe::testing {

inline constexpr Device gpu0{kCuda, 0}, gpu1{kCuda, 1};

/// Says that the test is skipped where there are fewer: if (!needs_gpus(2)) return;
inline bool needs_gpus(int count) {
  install_cuda();
  const int there = backend_of(Device(kCuda)).devices();
  if (there >= count) return true;
  skip_test("this needs " + std::to_string(count) + " GPUs; the machine has " + std::to_string(there));
  return false;
}

}  // namespace troupe::testing
