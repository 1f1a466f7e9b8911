#include "troupe/watch/brief_threads.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/thread.h"

namespace troupe::internal::watch {

BriefThreads::~BriefThreads() {
  std::list<std::thread> all;
  {
    Lock lock(mutex_);
    stopping_ = true;
    all.splice(all.end(), ended_);
    all.splice(all.end(), threads_);
    wake_.notify_all();
  }
  for (std::thread& thread : all) thread.join();
}

bool BriefThreads::run(std::function<void()> work) {
  std::list<std::thread> ended;  // joined after the lock
  bool begun = true;
  {
    Lock lock(mutex_);
    ended.swap(ended_);
    if (waiting_.size() >= idle_) {
      if (threads_.size() >= most_) {
        begun = false;
      } else {
        try {
          threads_.push_back(start_thread(name_, [this] { loop(); }));
          ++idle_;  // on its behalf: it is as good as there
        } catch (const Error&) {
          begun = false;
        }
      }
    }
    if (begun) waiting_.push_back(std::move(work));
    wake_.notify_one();
  }
  for (std::thread& thread : ended) thread.join();
  return begun;
}

void BriefThreads::loop() {
  Lock lock(mutex_);
  for (;;) {
    wake_.wait_for(lock.native(), kStay,
                   [&]() TROUPE_REQUIRES(mutex_) { return stopping_ || !waiting_.empty(); });
    --idle_;
    if (waiting_.empty()) break;
    auto piece = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    try {
      piece();
    } catch (...) {
      log::debug(std::string("[watch] ") + current_error().what());
    }
    piece = nullptr;  // what it holds goes before the thread is idle
    lock.lock();
    ++idle_;
  }
  const auto self = std::ranges::find(threads_, std::this_thread::get_id(), &std::thread::get_id);
  if (self != threads_.end()) ended_.splice(ended_.end(), threads_, self);
}

}  // namespace troupe::internal::watch
