#include "actors/worker/canceller.h"

#include "actors/worker/worker.h"

namespace troupe::internal::actors {

void Canceller::give_up(uint64_t id) {
  Worker* worker;
  {
    Lock lock(mutex_);
    worker = worker_;
    if (!worker) return;
    ++inside_;
  }
  worker->give_up(id);
  Lock lock(mutex_);
  if (--inside_ == 0) left_.notify_all();
}

void Canceller::close() {
  Lock lock(mutex_);
  worker_ = nullptr;
  left_.wait(lock.native(), [&]() TROUPE_REQUIRES(mutex_) { return inside_ == 0; });
}

}  // namespace troupe::internal::actors
