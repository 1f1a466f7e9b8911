// A flag that is set once, and that threads can sleep on.
#pragma once
#include <atomic>
#include <cstdint>

#include "core/base/clock.h"

namespace troupe {

/// A word that the kernel knows (a futex), so that a thread can sleep until this or something else happens.
/// Setting it costs a system call only if somebody sleeps. Thread-safe.
class Ready {
 public:
  bool is_set() const { return word_.load(std::memory_order_acquire) & kSet; }
  /// What was written before is seen by who finds it set.
  void set();
  /// False at `end`.
  bool wait_until(TimePoint end) const;

  /// Sleeps until it is set, until `end`, or until a thread of any process changes `other`, which the caller
  /// has found to be `value`, and calls wake_who_waits_for() on it; sometimes for nothing. False, at once,
  /// where the kernel cannot wait for two things (Linux before 5.16).
  bool wait_with(const std::atomic<uint32_t>& other, uint32_t value, TimePoint end) const;

 private:
  static constexpr uint32_t kSet = 1, kSleeper = 2;  // one of these for each who sleeps
  mutable std::atomic<uint32_t> word_{0};
};

/// Wakes who sleeps on a word that several processes share.
void wake_who_waits_for(const std::atomic<uint32_t>& shared);

}  // namespace troupe
