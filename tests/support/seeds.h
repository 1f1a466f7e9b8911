// How much of a random test runs.
#pragma once
#include <cstdint>
#include <cstdlib>

namespace troupe::testing {

/// How many seeds a test goes through: TROUPE_SEEDS, or so many.
inline uint64_t seeds(uint64_t usual) {
  const char* given = std::getenv("TROUPE_SEEDS");
  return given ? std::strtoull(given, nullptr, 10) : usual;
}

}  // namespace troupe::testing
