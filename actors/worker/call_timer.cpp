#include "actors/worker/call_timer.h"

#include "core/base/thread.h"

namespace troupe::internal::actors {

void CallTimer::start(std::function<TimePoint()> tick) {
  thread_ = start_thread("worker", [this, tick = std::move(tick)] { loop(tick); });
}

void CallTimer::poke() {
  Lock lock(mutex_);
  poked_ = true;
  wake_.notify_one();
}

void CallTimer::stop() {
  {
    Lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void CallTimer::loop(const std::function<TimePoint()>& tick) {
  for (;;) {
    const TimePoint next = tick();
    Lock lock(mutex_);
    const auto woken = [&]() TROUPE_REQUIRES(mutex_) { return stopping_ || poked_; };
    if (next == TimePoint::max())
      wake_.wait(lock.native(), woken);
    else
      wake_.wait_until(lock.native(), next, woken);
    poked_ = false;
    if (stopping_) return;
  }
}

}  // namespace troupe::internal::actors
