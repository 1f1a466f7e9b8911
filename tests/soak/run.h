// One simulated run: a seed in, what went wrong out.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::soak {

struct Report {
  std::optional<std::string> failure;
  uint64_t hash = 0;  ///< of every message, its content and its time
  uint64_t events = 0, calls = 0, errors = 0, faults = 0;
  std::vector<std::string> trace;  ///< if asked for
};

Report run(uint64_t seed, bool tracing = false);

}  // namespace troupe::soak
