// The words for a call that gets no answer: how long it was allowed to take, and what its callee was doing.
#pragma once
#include <atomic>
#include <string>

#include "core/base/clock.h"

namespace troupe::internal::actors {

/// How long a call may take, and who said so.
struct Limit {
  enum class From : uint8_t {
    call,    ///< with_timeout()
    worker,  ///< the cluster's, for calls that name none
    caller,  ///< what was left to the call that made this one
  };
  TimePoint made{}, end = TimePoint::max();  ///< max: no limit
  From from = From::worker;
};

/// So long before its end the callee of a call is asked what it is doing: an answer that comes later finds
/// nobody.
Duration lead_of(const Limit& limit);

/// "59.8 s", "250 ms".
std::string text_of(Duration d);

/// The text of the error at the end of `limit`: "[call] Trainer::train on w1 gave no answer within 60 s,
/// ...". `call`: "Trainer::train on w1". `status`: what its worker said, in a sentence; empty: nothing.
std::string overdue(const std::string& call, const std::string& worker, const Limit& limit, TimePoint now,
                    const std::string& status);

/// The present work of an actor, for other threads to look at.
class Doing {
 public:
  /// While one is alive, in the mailbox. `what` outlives the actor's use of it; `call`: its invocation.
  class Scope {
   public:
    Scope(Doing& doing, const char* what, const void* call, TimePoint since)
        : doing_(doing), what_(doing.what()), call_(doing.call()), since_(doing.since()) {
      doing_.set(what, call, since);
    }
    ~Scope() { doing_.set(what_, call_, since_); }
    Scope(const Scope&) = delete;

   private:
    Doing& doing_;
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
