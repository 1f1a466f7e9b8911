// What a future and its promise share: the result, who waits for it, and what is waited for.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/async/ready.h"
#include "core/async/result.h"
#include "core/base/call_frame.h"
#include "core/base/error.h"
#include "core/base/mutex.h"

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

/// Throws `invalid`: an empty future or promise was used. `use`: "get".
[[noreturn]] void throw_empty_future(const char* use);
[[noreturn]] void throw_empty_promise(const char* use);
/// Throws `invalid`: a function that was to give a future gave an empty one.
[[noreturn]] void throw_gave_empty_future();

class FutureCore;

/// A function that is kept until the result is there. It is never copied, so that each costs the compiler two
/// small functions: that which runs it, and that which destroys it.
class FutureCallback {
 public:
  using Run = void (*)(void* function, FutureCore& core);

  template <class F>
  FutureCallback(F&& f, Run run) : run_(run) {
    using Function = std::decay_t<F>;
    if constexpr (sizeof(Function) <= kRoom && alignof(Function) <= alignof(void*) &&
                  std::is_trivially_copyable_v<Function>) {
      ::new (static_cast<void*>(room_)) Function(std::forward<F>(f));
    } else {
      drop_ = [](void* function) { delete static_cast<Function*>(function); };
      place(new Function(std::forward<F>(f)));
    }
  }
  FutureCallback(FutureCallback&& o) noexcept : run_(o.run_), drop_(std::exchange(o.drop_, nullptr)) {
    std::memcpy(room_, o.room_, kRoom);
  }
  FutureCallback& operator=(FutureCallback&& o) noexcept;
  ~FutureCallback() {
    if (drop_) drop_(function());
  }
  void operator()(FutureCore& core) const { run_(function(), core); }

 private:
  static constexpr size_t kRoom = 2 * sizeof(void*);  // for a function without more than that, and no memory
  void place(void* function) { std::memcpy(room_, &function, sizeof function); }
  void* function() const;
  Run run_;
  void (*drop_)(void* function) = nullptr;
  alignas(void*) mutable std::byte room_[kRoom];
};

/// What is known of the type of a result.
struct ResultType {
  bool (*fail)(FutureCore& core, Error&& error);
  const Error* (*error)(const FutureCore& core);  ///< of a result that is there; null if it is well
};

/// All of it that does not depend on the result's type. Thread-safe. `readers` are those who want the result:
/// the futures, and the callbacks of on_ready and of on_end. When the last one goes before the result is
/// there, its source is let go of.
class FutureCore {
 public:
  explicit FutureCore(const ResultType& type) : type_(type) {}

  internal::Mutex mutex;
  Ready ready;                       // the result is there, and can be read without the lock
  std::atomic<uint32_t> writers{0};  // promises that can still complete it
  std::atomic<uint32_t> readers{0};

  /// Runs the callback, in the frame of who adds it: when the result comes, or now if it has. What it throws
  /// is logged.
  void add(FutureCallback callback) { add(std::move(callback), Asks::result); }
  /// The same for one who asks only whether it has ended: perhaps well, but elsewhere. A reader, or not.
  void add_for_end(FutureCallback callback, bool reads = true) {
    add(std::move(callback), reads ? Asks::end : Asks::quietly);
  }
  /// Runs it: the result is there. What it throws is its own, and logged: others, and who completes the
  /// future, go on.
  void run_now(void* function, FutureCallback::Run run);
  /// Completes with that error; false if the result is there.
  bool fail(Error error) { return type_.fail(*this, std::move(error)); }
  /// With which the call ended, as far as it is known here; null: well.
  const Error* error() const { return ready.is_set() ? type_.error(*this) : nullptr; }
  /// Locks, for who brings the result; unlocked if it is there.
  std::unique_lock<internal::Mutex> begin_completion();
  /// The result has been written, under the lock: lets who waits know.
  void completed(std::unique_lock<internal::Mutex> lock);
  void wait_for_source(Source next);
  void give_up();
  /// What it waits for, to be looked at and not to be ended; nothing once the result is there.
  Source source();
  /// Whether the result is not there yet, and one handle at most can ask for it.
  bool has_one_asker();
  /// The readers who ask for the result.
  uint32_t askers();
  /// Whether anything will run when the result comes.
  bool has_callbacks();
  /// Nobody will ask for the result here: whoever asks for the end hears now that it has come.
  void goes_elsewhere();
  void add_reader() { readers.fetch_add(1, std::memory_order_relaxed); }
  void drop_reader() {
    if (readers.fetch_sub(1, std::memory_order_acq_rel) == 1 && !ready.is_set()) give_up();
  }
  /// The end of a source that is such a state.
  static void drop_reader_of(void* state, uint64_t, bool) { static_cast<FutureCore*>(state)->drop_reader(); }

 private:
  enum class Asks : uint8_t { result, end, quietly };
  struct Callback {
    FutureCallback run;
    CallFrame at;
    Asks asks;
  };
  void add(FutureCallback callback, Asks asks);
  void run(const std::vector<Callback>& callbacks);
  uint32_t asking(Asks what) const;  // with mutex
  const ResultType& type_;
  std::vector<Callback> callbacks_;
  Source source_;
  bool given_up_ = false;  // the source was let go of before the result was there
};

template <class T>
struct FutureState : FutureCore {
  FutureState() : FutureCore(kType) {}
  ~FutureState() {
    if (ready.is_set()) std::destroy_at(&result);
  }
  union {
    Result<T> result;  // once it is there
  };

  bool complete(Result<T>&& r) {
    std::unique_lock lock = begin_completion();
    if (!lock) return false;
    std::construct_at(&result, std::move(r));
    completed(std::move(lock));
    return true;
  }

 private:
  static bool fail_with(FutureCore& core, Error&& error) {
    return static_cast<FutureState&>(core).complete(Result<T>(std::move(error)));
  }
  static const Error* error_of(const FutureCore& core) {
    const Result<T>& r = static_cast<const FutureState&>(core).result;
    return r.ok() ? nullptr : &r.error();
  }
  static constexpr ResultType kType{&fail_with, &error_of};
};

/// A new state, with one promise. Compiled once for the most frequent types (codec.h has more).
template <class T>
std::shared_ptr<FutureCore> make_future_state() {
  auto state = std::make_shared<FutureState<T>>();
  state->writers = 1;
  return state;
}
extern template std::shared_ptr<FutureCore> make_future_state<void>();

}  // namespace troupe
