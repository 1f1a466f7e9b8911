// The present work of an actor, which other threads may read.
#pragma once
#include <atomic>

#include "core/base/clock.h"

namespace troupe::internal::actors {

/// The present work of an actor. Written in its mailbox, read by any thread.
class CurrentActivity {
 public:
  /// While one is alive, in the mailbox. `what` outlives the actor's use of it; `call`: its invocation.
  class Scope {
   public:
    Scope(CurrentActivity& activity, const char* what, const void* call, TimePoint since)
        : activity_(activity), what_(activity.what()), call_(activity.call()), since_(activity.since()) {
      activity_.set(what, call, since);
    }
    ~Scope() { activity_.set(what_, call_, since_); }
    Scope(const Scope&) = delete;

   private:
    CurrentActivity& activity_;
    const char* const what_;
    const void* const call_;
    const TimePoint since_;
  };
  /// Null: nothing.
  const char* what() const { return what_.load(std::memory_order_relaxed); }
  const void* call() const { return call_.load(std::memory_order_relaxed); }
  TimePoint since() const { return TimePoint(Duration(since_.load(std::memory_order_relaxed))); }

 private:
  void set(const char* what, const void* call, TimePoint since) {
    what_.store(what, std::memory_order_relaxed);
    call_.store(call, std::memory_order_relaxed);
    since_.store(since.time_since_epoch().count(), std::memory_order_relaxed);
  }
  std::atomic<const char*> what_{nullptr};
  std::atomic<const void*> call_{nullptr};
  std::atomic<int64_t> since_{0};
};

}  // namespace troupe::internal::actors
