// Where work of one kind runs, decided by how long it took so far.
#pragma once
#include <atomic>
#include <bit>
#include <cstdint>

#include "core/clock.h"

namespace troupe::actors {

enum class Where {
  pool,    ///< a thread of the runtime's pool
  caller,  ///< this thread, at once if it runs no job now, else when the job that it runs has ended; the pool
           ///< if the mailbox is busy elsewhere
};

/// Short work runs on the thread that brought it, since handing over would cost 10 to 25 us; longer work in
/// the pool, since it would hold up the connection. Single runs say little (a thread that is interrupted
/// takes milliseconds for anything), so a kind of work changes its place when several of its last eight runs
/// ask for it, and comes back to the reader's thread only when none of them was long: near the limit it stays
/// in the pool.
class Pace {
 public:
  Where where() const { return static_cast<Where>(where_.load(std::memory_order_relaxed)); }
  /// Called by one thread at a time.
  void note(Duration took) {
    const bool is_long = took > kShort;
    runs_ = static_cast<uint8_t>(runs_ << 1 | is_long);
    const int longs = std::popcount(runs_);
    if (longs == 0) where_.store(static_cast<uint8_t>(Where::caller), std::memory_order_relaxed);
    if (longs >= kManyLong) where_.store(static_cast<uint8_t>(Where::pool), std::memory_order_relaxed);
  }

  static constexpr Duration kShort = std::chrono::microseconds(20);
  static constexpr int kManyLong = 3;  // of eight

 private:
  std::atomic<uint8_t> where_{static_cast<uint8_t>(Where::pool)};  // what never ran could take long
  uint8_t runs_ = 0;  // the last eight, the newest lowest; 1: it was long
};

}  // namespace troupe::actors
