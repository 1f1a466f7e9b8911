// Counts of the calls that actors have handled, and of the time that they took.
#pragma once
#include <atomic>
#include <cstdint>

#include "core/base/clock.h"

namespace troupe::internal::actors {

/// The calls of a method so far, of one actor or of all of a type.
struct HandledCount {
  int64_t calls = 0;      ///< that have begun
  int64_t busy_ns = 0;    ///< at work on a thread, without the methods that they run in place
  int64_t queued_ns = 0;  ///< from their arrival until they began
  HandledCount& operator+=(const HandledCount& o) {
    calls += o.calls, busy_ns += o.busy_ns, queued_ns += o.queued_ns;
    return *this;
  }
};

/// Grows while its actor works: written in the actor's mailbox, read by any thread.
class HandledTally {
 public:
  void began(Duration queued) {
    grow(calls_, 1);
    grow(queued_ns_, queued.count());
  }
  void ran(Duration took) { grow(busy_ns_, took.count()); }
  HandledCount read() const {
    return {calls_.load(std::memory_order_relaxed), busy_ns_.load(std::memory_order_relaxed),
            queued_ns_.load(std::memory_order_relaxed)};
  }

 private:
  static void grow(std::atomic<int64_t>& sum, int64_t by) {  // there is one writer
    sum.store(sum.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
  std::atomic<int64_t> calls_{0}, busy_ns_{0}, queued_ns_{0};
};

}  // namespace troupe::internal::actors
