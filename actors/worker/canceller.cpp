#include "actors/worker/canceller.h"

namespace troupe::internal::actors {

void Canceller::give_up(uint64_t id) {
  {
    Lock lock(mutex_);
    if (closed_) return;
    ++inside_;
  }
  give_up_(id);
  Lock lock(mutex_);
  if (--inside_ == 0) left_.notify_all();
}

void Canceller::close() {
  Lock lock(mutex_);
  closed_ = true;
  left_.wait(lock.native(), [&]() TROUPE_REQUIRES(mutex_) { return inside_ == 0; });
}

}  // namespace troupe::internal::actors
