// Threads for work that comes in bursts: each stays for a moment after its last piece, in case there is
// another one, since a thread costs more to start than most of what it does.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <thread>

#include "core/base/mutex.h"

namespace troupe::internal::watch {

/// Thread-safe.
class BriefThreads {
 public:
  /// `name`: of the threads, of which there are `most`.
  BriefThreads(const char* name, size_t most) : name_(name), most_(most) {}
  ~BriefThreads();  ///< when all work is done
  BriefThreads(const BriefThreads&) = delete;
  /// Does it soon; false if all threads are at work, or none can be had. What it throws goes to the log.
  bool run(std::function<void()> work);

 private:
  static constexpr auto kStay = std::chrono::seconds(2);
  void loop();

  const char* const name_;
  const size_t most_;
  Mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> waiting_ TROUPE_GUARDED_BY(mutex_);  // as many as idle_, at most
  std::list<std::thread> threads_ TROUPE_GUARDED_BY(mutex_), ended_ TROUPE_GUARDED_BY(mutex_);
  size_t idle_ TROUPE_GUARDED_BY(mutex_) = 0;
  bool stopping_ TROUPE_GUARDED_BY(mutex_) = false;
};

}  // namespace troupe::internal::watch
