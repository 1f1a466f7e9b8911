// Waiting for what another thread or process brings about and does not announce.
#pragma once
#include <chrono>
#include <thread>

namespace troupe::testing {

/// Asks until `holds()` is true; false after a minute, which no load explains.
template <class F>
bool eventually(F&& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace troupe::testing
