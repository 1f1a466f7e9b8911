// A value that arrives later, or the error that it became.
#pragma once
#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/async/future_state.h"
#include "core/async/waiting.h"
#include "core/base/call_frame.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/fork.h"

namespace troupe {

template <class T>
class Promise;
template <class T>
class Future;
template <class T>
struct IsFuture : std::false_type {
  using Value = T;
};
template <class T>
struct IsFuture<Future<T>> : std::true_type {
  using Value = T;
};

/// What f returns for a value of type T.
template <class F, class T>
struct ThenResult {
  using type = std::invoke_result_t<F&, const T&>;
};
template <class F>
struct ThenResult<F, void> {
  using type = std::invoke_result_t<F&>;
};

/// Shared handle on a value that arrives later. Thread-safe; copies refer to the same value.
///
/// Callbacks run once, in the order in which they were added: on the completing thread, or at once if the
/// value is there. They must not block. They run in the frame of whoever added them (worker, context), not
/// the completer's. An exception of one is logged, and changes nothing for the others.
///
/// An empty future, made by default or moved from, may be assigned to, copied and asked whether it is
/// valid(); every other use is `invalid`.
///
/// A future that is dropped, with all its copies and with all futures made from it, before its value is there
/// is no longer wanted: the call that it comes from is cancelled. Who waits in a callback of on_ready() wants
/// it.
template <class T>
class [[nodiscard]] Future {
 public:
  using value_type = T;
  Future() = default;  ///< empty
  Future(const Future& o) : Future(o.state_) {}
  Future(Future&& o) noexcept = default;
  Future& operator=(Future o) noexcept {
    std::swap(state_, o.state_);
    return *this;
  }
  ~Future() {
    if (state_) state_->drop_reader();
  }
  static Future ready(NonVoid<T> v) {
    Promise<T> p;
    p.set(std::move(v));
    return p.future();
  }
  static Future failed(Error e) {
    Promise<T> p;
    p.fail(std::move(e));
    return p.future();
  }

  bool valid() const { return static_cast<bool>(state_); }
  bool is_ready() const { return state("is_ready()").ready.is_set(); }
  /// Blocks until the value is there and returns it, or throws its Error. `invalid` inside an actor, in a
  /// callback that was added there too, and whether the value is there or not, so that no program works by
  /// luck: co_await instead, or peek().
  T get() const {
    const Result<T>& r = wait();
    if constexpr (std::is_void_v<T>)
      (void)r.value();
    else
      return r.value();
  }
  /// Blocks until value or error is there; `invalid` as get().
  const Result<T>& wait() const& {
    const bool ready = state("get()").ready.is_set();
    check_may_block("Future::get");
    if (ready) return *state_->result;
    check_process("Future::get");
    wait_until(state_->ready, TimePoint::max());
    return *state_->result;
  }
  Result<T> wait() const&& { return wait(); }
  /// False if nothing arrived within `timeout`; `invalid` as get().
  bool wait_for(Duration timeout) const {
    const bool ready = state("wait_for()").ready.is_set();
    check_may_block("Future::wait_for");
    if (ready) return true;
    check_process("Future::wait_for");
    timeout =
        std::min<Duration>(timeout, std::chrono::hours(24 * 365 * 100));  // now + timeout must be a time
    return wait_until(state_->ready, Clock::system().now() + timeout);
  }
  /// The result if it is there, else null. Valid as long as this future.
  const Result<T>* peek() const& { return state("peek()").ready.is_set() ? &*state_->result : nullptr; }
  const Result<T>* peek() const&& = delete;  // name the future: its result goes with the last handle on it

  /// Nobody wants the value any more, whoever else holds this future: it fails with `cancelled` unless it is
  /// ready, and so does the call that it comes from, unless that is waited for by other ways.
  void cancel() const {
    state("cancel()");
    const auto shared = state_;
    shared->give_up();
    shared->complete(Error(ErrorKind::cancelled, "[future] was cancelled by one who waited for it"));
  }

  /// Calls f(const Result<T>&) when the result is there. What f throws is logged.
  template <class F>
  void on_ready(F f) const {
    if (!state("on_ready()").ready.is_set()) state_->add_reader();  // for ever: f wants the result
    watch(std::move(f));
  }
  /// The same for one who would like to know, and does not keep the call from being cancelled.
  template <class F>
  void watch(F f) const {
    FutureState<T>& shared = state("watch()");
    if (shared.ready.is_set()) return run_callback(f, *shared.result);
    shared.add([f = std::move(f), &shared]() mutable { run_callback(f, *shared.result); });
  }
  /// Calls f(const Error*) when the call has ended, null if well, for one who wants that it is made, but not
  /// its result: that may go to another worker.
  template <class F>
  void on_end(F f) const {
    FutureState<T>& shared = state("on_end()");
    auto end = [f = std::move(f), &shared]() mutable {
      const bool failed = shared.ready.is_set() && !shared.result->ok();
      run_callback(f, static_cast<const Error*>(failed ? &shared.result->error() : nullptr));
    };
    if (shared.ready.is_set()) return end();
    shared.add_reader();
    shared.add_for_end(std::move(end));
  }
  /// cancel() of it, as long as there is somebody else who keeps it.
  std::function<void()> canceller() const {
    state("canceller()");
    return [weak = std::weak_ptr(state_)] {
      if (const auto shared = weak.lock()) Future(shared).cancel();
    };
  }
  /// Future of f(value), or of what the future that f returns gives; an error passes by f. What f throws
  /// becomes the new future's error.
  template <class F>
  auto then(F f) const {
    using U = typename ThenResult<F, T>::type;
    using V = typename IsFuture<U>::Value;
    return follow<V>([f = std::move(f)](const Promise<V>& promise, const Result<T>& r) mutable {
      if (!r.ok()) return (void)promise.fail(r.error());
      promise.template settle<U>([&]() -> U {
        if constexpr (std::is_void_v<T>)
          return f();
        else
          return f(r.value());
      });
    });
  }
  /// The value if there is one; else f(const Error&) gives another, or a future of one, or throws an error in
  /// its place. An error that names what the caller can do next (ErrorKind) is worth keeping.
  template <class F>
  Future recover(F f) const {
    using U = std::invoke_result_t<F&, const Error&>;
    static_assert(std::is_same_v<typename IsFuture<U>::Value, T>,
                  "recover: the function gives what the future would have given, or a future of that");
    return follow<T>([f = std::move(f)](const Promise<T>& promise, const Result<T>& r) mutable {
      if (r.ok()) return (void)promise.complete(r);
      promise.template settle<U>([&]() -> U { return f(r.error()); });
    });
  }

  /// then(f), for an f that only gives the value in another form, and is not called if nobody asks for that:
  /// see take_origin().
  template <class F>
  auto in_form(F f) const {
    using V = std::invoke_result_t<F&, const T&>;
    Promise<V> promise;
    const Future<V> made = promise.future();
    if (!state("in_form()").ready.is_set()) promise.waits_for(as_source(kOtherForm));
    watch([promise, f = std::move(f)](const Result<T>& r) mutable {
      if (!promise.wanted()) return;
      if (r.ok())
        promise.complete_with([&] { return f(r.value()); });
      else
        promise.fail(r.error());
    });
    return made;
  }
  /// The `Future<U>` whose in_form() gave this one, in its place, which is empty then; nothing, and this one
  /// stays, if it is no such future, if the value is there, or if somebody else could ask for either of them.
  template <class U>
  std::optional<Future<U>> take_origin() {
    if (!state("take_origin()").has_one_asker()) return {};
    const Source source = state_->source();
    if (source.let_go != &FutureCore::drop_reader_of || source.number != kOtherForm) return {};
    auto origin = std::static_pointer_cast<FutureState<U>>(std::static_pointer_cast<FutureCore>(source.what));
    if (origin->askers() != 1) return {};
    Future<U> taken{std::move(origin)};
    state_->goes_elsewhere();
    *this = Future();
    return taken;
  }

  /// For futures that are made from this one: they want it until they have their result. `number`: of the
  /// source.
  Source as_source(uint64_t number = 0) const {
    state("as_source()").add_reader();
    return {std::static_pointer_cast<FutureCore>(state_), number, &FutureCore::drop_reader_of};
  }
  /// What all handles on this value share.
  FutureCore& core() const { return state("core()"); }

 private:
  friend class Promise<T>;
  template <class>
  friend class Future;
  static constexpr uint64_t kOtherForm = 1;
  explicit Future(std::shared_ptr<FutureState<T>> s) : state_(std::move(s)) {
    if (state_) state_->add_reader();
  }
  FutureState<T>& state(const char* use) const {
    if (!state_) [[unlikely]]
      throw_empty_future(use);
    return *state_;
  }

  // The future that f(promise, result) completes.
  template <class V, class F>
  Future<V> follow(F f) const {
    const bool now = state("then()").ready.is_set();
    Promise<V> promise;
    if (!now) promise.waits_for(as_source());
    watch([promise, f = std::move(f)](const Result<T>& r) mutable { f(promise, r); });
    return promise.future();
  }

  std::shared_ptr<FutureState<T>> state_;
};

/// The writing end of a Future. Copies refer to the same one. The first completion wins; later ones return
/// false. If all copies go without a completion, the future fails with `cancelled`: nothing waits for ever.
template <class T>
class Promise {
 public:
  Promise() : state_(std::make_shared<FutureState<T>>()) { ++state_->writers; }
  Promise(const Promise& o) : state_(o.state_) {
    if (state_) ++state_->writers;
  }
  Promise(Promise&& o) noexcept : state_(std::move(o.state_)) {}
  Promise& operator=(Promise o) noexcept {
    std::swap(state_, o.state_);
    return *this;
  }
  ~Promise() {
    if (state_ && --state_->writers == 0) abandon();
  }
  Future<T> future() const {
    state("future()");
    return Future<T>(state_);
  }

  bool set(NonVoid<T> value) const { return complete(Result<T>(std::move(value))); }
  bool set() const requires std::is_void_v<T> { return set(Unit{}); }
  bool fail(Error error) const { return complete(Result<T>(std::move(error))); }
  bool complete(Result<T> result) const {
    state("completion");
    const auto shared = state_;  // whoever waits may let go of this promise once the lock is free
    return shared->complete(std::move(result));
  }
  /// Completes with what f returns or throws.
  template <class F>
  bool complete_with(F&& f) const {
    try {
      if constexpr (std::is_void_v<T>)
        return f(), set(Unit{});
      else
        return set(f());
    } catch (...) {
      return fail(current_error());
    }
  }
  /// Completes when the future that f returns does, with the same; or now, with what f throws.
  template <class F>
  void complete_from(F&& f) const {
    try {
      const Future<T> next = f();
      if (!next.valid()) throw_invalid("[future] the function gave an empty future");
      next.on_ready([promise = *this](const Result<T>& r) { promise.complete(r); });
    } catch (...) {
      fail(current_error());
    }
  }

  /// Whether there is a future of it, or there is somebody who wants its result.
  bool wanted() const { return state("wanted()").readers != 0; }
  /// What the futures of this promise wait for, in place of what they waited for before. Only for promises
  /// whose future() was asked for once: the source is let go of when that has gone.
  void waits_for(Source source) const { state("waits_for()").wait_for_source(std::move(source)); }
  /// Completes with what f, of result type U, gives or throws; if that is a future, waits for it.
  template <class U, class F>
  void settle(F&& f) const {
    if constexpr (IsFuture<U>::value) {
      try {
        const U next = f();
        if (!next.valid()) throw_invalid("[future] the function gave an empty future");
        waits_for(next.as_source());
        next.watch([promise = *this](const Result<T>& r) { promise.complete(r); });
      } catch (...) {
        fail(current_error());
      }
    } else {
      complete_with(f);
    }
  }

 private:
  FutureState<T>& state(const char* use) const {
    if (!state_) [[unlikely]]
      throw_empty_promise(use);
    return *state_;
  }
  void abandon() {
    if (!state_->ready.is_set())
      fail(Error(ErrorKind::cancelled, "[future] whoever should have given the value has gone"));
  }
  std::shared_ptr<FutureState<T>> state_;
};

}  // namespace troupe
