// What a future and its promise share: the result, who waits for it, and what is waited for.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/async/ready.h"
#include "core/async/result.h"
#include "core/base/error.h"

namespace troupe {

/// What a future waits for: a call, or other futures. Let go of once, when the future has its result or when
/// nobody wants that any more: then a call is cancelled.
struct Source {
  std::shared_ptr<void> what;
  uint64_t number = 0;
  void (*let_go)(void* what, uint64_t number, bool done) = nullptr;
  void end(bool done) {
    if (let_go) std::exchange(let_go, nullptr)(what.get(), number, done);
    what.reset();
  }
};

/// Logs the exception in flight: a callback threw it, and nobody else would hear of it.
void log_thrown_by_callback();
/// Throws `invalid`: an empty future or promise was used. `use`: "get".
[[noreturn]] void throw_empty_future(const char* use);
[[noreturn]] void throw_empty_promise(const char* use);

/// Runs a callback of a future. What it throws is its own: others, and who completes the future, go on.
template <class F, class R>
void run_callback(F& f, const R& result) {
  try {
    f(result);
  } catch (...) {
    log_thrown_by_callback();
  }
}

/// Thread-safe. `readers` are those who want the result: the futures, and the callbacks of on_ready. When the
/// last one goes before the result is there, its source is let go of.
template <class T>
struct FutureState {
  using Callback = std::function<void(const Result<T>&)>;
  std::mutex mutex;
  std::optional<Result<T>> result;
  Ready ready;                       // result is there, and can be read without the lock
  std::atomic<uint32_t> writers{0};  // promises that can still complete it
  std::atomic<uint32_t> readers{0};
  std::vector<Callback> callbacks;
  Source source;
  bool given_up = false;  // the source was let go of before the result was there

  bool complete(Result<T> r) {
    std::vector<Callback> waiting;
    Source done;
    {
      std::lock_guard lock(mutex);
      if (result) return false;
      result.emplace(std::move(r));
      ready.set();
      waiting.swap(callbacks);
      done = std::exchange(source, {});
    }
    for (auto& c : waiting) run_callback(c, *result);
    done.end(true);
    return true;
  }
  void wait_for_source(Source next) {
    bool late;
    {
      std::lock_guard lock(mutex);
      late = given_up;
      if (!late && !result) std::swap(next, source);
    }
    next.end(!late);
  }
  void give_up() {
    Source unwanted;
    {
      std::lock_guard lock(mutex);
      if (result || !source.let_go) return;
      given_up = true;
      unwanted = std::exchange(source, {});
    }
    unwanted.end(false);
  }
  void add_reader() { readers.fetch_add(1, std::memory_order_relaxed); }
  void drop_reader() {
    if (readers.fetch_sub(1, std::memory_order_acq_rel) == 1 && !ready.is_set()) give_up();
  }
};

}  // namespace troupe
