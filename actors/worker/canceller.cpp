#include "actors/worker/canceller.h"

#include "actors/worker/worker.h"

namespace troupe::internal::actors {

void Canceller::give_up(uint64_t id) {
  Worker* worker;
  {
    std::lock_guard lock(mutex_);
    worker = worker_;
    if (!worker) return;
    ++inside_;
  }
  worker->give_up(id);
  std::lock_guard lock(mutex_);
  if (--inside_ == 0) left_.notify_all();
}

void Canceller::close() {
  std::unique_lock lock(mutex_);
  worker_ = nullptr;
  left_.wait(lock, [&] { return inside_ == 0; });
}

}  // namespace troupe::internal::actors
