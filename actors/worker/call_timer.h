// The thread that ends calls whose time has passed.
#pragma once
#include <condition_variable>
#include <functional>
#include <thread>

#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace troupe::internal::actors {

/// Thread-safe, but for start() and stop().
class CallTimer {
 public:
  ~CallTimer() { stop(); }
  /// Runs `tick`, which says when to come again.
  void start(std::function<TimePoint()> tick);
  /// It has to come sooner.
  void poke();
  /// Idempotent.
  void stop();

 private:
  void loop(const std::function<TimePoint()>& tick);

  Mutex mutex_;
  std::condition_variable wake_;
  bool poked_ TROUPE_GUARDED_BY(mutex_) = false;
  bool stopping_ TROUPE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace troupe::internal::actors
