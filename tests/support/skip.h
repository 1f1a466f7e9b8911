// Tests that need what is not here: ctest reports them as skipped, not as passed.
#pragma once
#include <cstdio>
#include <string>

namespace troupe::testing {

/// Call it before anything has been checked, and return. tests/CMakeLists.txt knows its first word.
inline void skip_test(const std::string& why) {
  std::printf("test-skipped: %s\n", why.c_str());
  std::fflush(stdout);
}

}  // namespace troupe::testing
