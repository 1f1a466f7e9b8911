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
#include "core/base/call_frame.h"
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

/// All of it that does not depend on the result's type. Thread-safe. `readers` are those who want the result:
/// the futures, and the callbacks of on_ready and of on_end. When the last one goes before the result is
/// there, its source is let go of.
class FutureCore {
 public:
  std::mutex mutex;
  Ready ready;                       // the result is there, and can be read without the lock
  std::atomic<uint32_t> writers{0};  // promises that can still complete it
  std::atomic<uint32_t> readers{0};

  /// Runs the callback, in the frame of who adds it: when the result comes, or now if it has.
  void add(std::function<void()> callback) { add(std::move(callback), Asks::result); }
  /// The same for a reader who asks only whether it has ended: perhaps well, but elsewhere.
  void add_for_end(std::function<void()> callback) { add(std::move(callback), Asks::end); }
  /// The result has been written, under the lock: lets who waits know.
  void completed(std::unique_lock<std::mutex> lock);
  void wait_for_source(Source next);
  void give_up();
  /// What it waits for, to be looked at and not to be ended; nothing once the result is there.
  Source source();
  /// Whether the result is not there yet, and one handle at most can ask for it.
  bool has_one_asker();
  /// The readers who ask for the result.
  uint32_t askers();
  /// Nobody will ask for the result here: whoever asks for the end hears now that it has come.
  void goes_elsewhere();
  void add_reader() { readers.fetch_add(1, std::memory_order_relaxed); }
  void drop_reader() {
    if (readers.fetch_sub(1, std::memory_order_acq_rel) == 1 && !ready.is_set()) give_up();
  }
  /// The end of a source that is such a state.
  static void drop_reader_of(void* state, uint64_t, bool) { static_cast<FutureCore*>(state)->drop_reader(); }

 private:
  enum class Asks : uint8_t { result, end };
  struct Callback {
    std::function<void()> run;
    CallFrame at;
    Asks asks;
  };
  void add(std::function<void()> callback, Asks asks);
  static void run(const std::vector<Callback>& callbacks);
  uint32_t ask_for_end() const;  // with mutex
  std::vector<Callback> callbacks_;
  Source source_;
  bool given_up_ = false;  // the source was let go of before the result was there
};

template <class T>
struct FutureState : FutureCore {
  std::optional<Result<T>> result;

  bool complete(Result<T> r) {
    std::unique_lock lock(mutex);
    if (result) return false;
    result.emplace(std::move(r));
    completed(std::move(lock));
    return true;
  }
};

}  // namespace troupe
