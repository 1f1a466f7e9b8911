// Where work of one kind runs, decided by how long it took so far.
#pragma once
#include <atomic>
#include <bit>
#include <cstdint>

#include "core/base/clock.h"

namespace troupe::internal::actors {

enum class DispatchTarget {
  pool,    ///< a thread of the runtime's pool
  caller,  ///< this thread, at once if it runs no job now, else when the job that it runs has ended; the pool
           ///< if the mailbox is busy elsewhere
};

/// Short work runs on the thread that brought it, since handing over would cost 10 to 25 us; longer work in
/// the pool, since it would hold up the connection. What a run sends belongs to its time, and waking a reader
/// that sleeps takes 10 to 20 us of it, so the limit is well above that. Single runs say little (a thread
/// that is interrupted takes milliseconds for anything), so a kind of work changes its place when several of
/// its last eight runs ask for it, and comes back to the reader's thread only when none of them was long:
/// near the limit it stays in the pool. One that took as long as no interruption does goes there at once, and
/// for long: until then the connection was held up. Thread-safe; notes of several threads at a time may get
/// lost.
class DispatchHistory {
 public:
  DispatchTarget where() const { return static_cast<DispatchTarget>(where_.load(std::memory_order_relaxed)); }
  /// Of a kind that has not run: its first runs go where those of `other` go.
  void begin_like(const DispatchHistory& other) {
    where_.store(other.where_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  /// It has run so few times that it says little by itself.
  bool is_new() const { return noted_.load(std::memory_order_relaxed) < kNew; }
  void note(Duration took) {
    const bool is_long = took > kShort;
    if (is_new()) noted_.fetch_add(1, std::memory_order_relaxed);
    const auto runs = static_cast<uint8_t>(runs_.load(std::memory_order_relaxed) << 1 | is_long);
    runs_.store(runs, std::memory_order_relaxed);
    const int longs = std::popcount(runs);
    uint8_t probation = probation_.load(std::memory_order_relaxed);
    if (took > kVeryLong)
      probation = kProbation;
    else if (probation && !is_long)
      --probation;
    probation_.store(probation, std::memory_order_relaxed);
    if (longs == 0 && !probation)
      where_.store(static_cast<uint8_t>(DispatchTarget::caller), std::memory_order_relaxed);
    if (longs >= kManyLong || probation)
      where_.store(static_cast<uint8_t>(DispatchTarget::pool), std::memory_order_relaxed);
  }

  static constexpr Duration kShort = std::chrono::microseconds(50);
  static constexpr int kManyLong = 3;  // of eight
  static constexpr Duration kVeryLong = std::chrono::milliseconds(20);
  static constexpr uint8_t kProbation = 255;  // short runs until one that was so long is forgiven
  static constexpr int kNew = 8;

 private:
  std::atomic<uint8_t> where_{static_cast<uint8_t>(DispatchTarget::pool)};  // what never ran could take long
  std::atomic<uint8_t> runs_{0};   // the last eight, the newest lowest; 1: it was long
  std::atomic<uint8_t> noted_{0};  // up to kNew
  std::atomic<uint8_t> probation_{0};
};

}  // namespace troupe::internal::actors
