#include "actors/runtime/job_queue.h"

#include <utility>

namespace troupe::internal::actors {

void JobQueue::post(std::function<void()> job) {
  Mailbox* mailbox = nullptr;
  {
    const Lock lock(mutex_);
    if (!mailbox_) mailbox_ = runtime_.make_mailbox();
    mailbox = mailbox_.get();
    ++open_;
  }
  mailbox->post(make_job([this, job = std::move(job)]() mutable {
                  std::exchange(job, nullptr)();
                  const Lock lock(mutex_);
                  if (--open_ == 0) empty_.notify_all();
                }),
                DispatchTarget::pool);
}

bool JobQueue::is_empty() const {
  const Lock lock(mutex_);
  return open_ == 0;
}

void JobQueue::finish() {
  Lock lock(mutex_);
  empty_.wait(lock.native(), [&]() TROUPE_REQUIRES(mutex_) { return open_ == 0; });
}

}  // namespace troupe::internal::actors
