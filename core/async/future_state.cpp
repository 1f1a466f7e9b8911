#include "core/async/future_state.h"

#include <string>

#include "core/base/log.h"

namespace troupe {

void log_thrown_by_callback() {
  internal::log::error(
      std::string("[future] a callback of on_ready() threw, which nobody sees; use then(): ") +
      current_error().what());
}

void throw_empty_future(const char* use) {
  throw_invalid(
      "[future] " + std::string(use) +
      " of an empty future: it was made by default, or moved from; a copy refers to the same value");
}

void throw_empty_promise(const char* use) {
  throw_invalid("[future] " + std::string(use) + " of an empty promise: it was moved from");
}

void FutureCore::add(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex);
    if (!ready.is_set()) {
      callbacks_.push_back({std::move(callback), frame().for_later()});
      return;
    }
  }
  callback();
}

void FutureCore::completed(std::unique_lock<std::mutex> lock) {
  ready.set();
  const auto waiting = std::exchange(callbacks_, {});
  Source done = std::exchange(source_, {});
  lock.unlock();
  for (const Callback& callback : waiting) {
    CallFrameScope scope(callback.at);
    callback.run();
  }
  done.end(true);
}

void FutureCore::wait_for_source(Source next) {
  bool late;
  {
    std::lock_guard lock(mutex);
    late = given_up_;
    if (!late && !ready.is_set()) std::swap(next, source_);
  }
  next.end(!late);
}

void FutureCore::give_up() {
  Source unwanted;
  {
    std::lock_guard lock(mutex);
    if (ready.is_set() || !source_.let_go) return;
    given_up_ = true;
    unwanted = std::exchange(source_, {});
  }
  unwanted.end(false);
}

}  // namespace troupe
