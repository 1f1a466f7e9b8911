// Jobs for a thread of the worker's pool, one at a time, in order.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>

#include "actors/runtime/runtime.h"
#include "core/base/mutex.h"

namespace troupe::internal::actors {

/// What posts is never held up, and what is posted may wait for a device. Thread-safe.
class JobQueue {
 public:
  explicit JobQueue(Runtime& runtime) : runtime_(runtime) {}
  ~JobQueue() { finish(); }
  JobQueue(const JobQueue&) = delete;
  /// `job` does not throw.
  void post(std::function<void()> job);
  bool is_empty() const;
  /// Waits until all have run.
  void finish();

 private:
  Runtime& runtime_;
  mutable Mutex mutex_;
  std::condition_variable empty_;
  std::unique_ptr<Mailbox> mailbox_ TROUPE_GUARDED_BY(mutex_);  // made when it is first needed
  size_t open_ TROUPE_GUARDED_BY(mutex_) = 0;
};

}  // namespace troupe::internal::actors
