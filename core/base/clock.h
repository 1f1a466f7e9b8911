// Time, as something that can be replaced: the real clock, or a virtual one in simulations and tests.
#pragma once
#include <atomic>
#include <chrono>

namespace troupe {

using Duration = std::chrono::nanoseconds;
/// Monotonic; comparable only within one process (or one simulation).
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

/// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  /// The machine's monotonic clock.
  static const Clock& system();
};

/// Stands still until told to move.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Duration(ns_.load())); }
  void advance(Duration d) { ns_ += d.count(); }

 private:
  std::atomic<int64_t> ns_{0};
};

}  // namespace troupe
