// A value that arrives later, or the error that it became.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/async/future_state.h"
#include "core/base/clock.h"
#include "core/base/error.h"

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

/// What a Future has that does not depend on the type of its value.
class FutureBase {
 public:
  bool valid() const { return static_cast<bool>(core_); }
  bool is_ready() const { return state("is_ready()").ready.is_set(); }
  /// False if nothing arrived within `timeout`; `invalid` as get().
  bool wait_for(Duration timeout) const;
  /// Nobody wants the value any more, whoever else holds this future: it fails with `cancelled` unless it is
  /// ready, and so does the call that it comes from, unless that is waited for by other ways.
  void cancel() const;
  /// Calls f(const Error*) when the call has ended, null if well, for one who wants that it is made, but not
  /// its result: that may go to another worker.
  template <class F>
  void on_end(F f) const {
    FutureCore& core = state("on_end()");
    const auto run = [](void* function, FutureCore& of) { (*static_cast<F*>(function))(of.error()); };
    if (core.ready.is_set()) return core.run_now(&f, run);
    core.add_reader();
    core.add_for_end(FutureCallback(std::move(f), run));
  }
  /// Calls f(FutureCore&) when the result is there, for one who would like to know, and does not keep the
  /// call from being cancelled: Future::watch() without the type of the result.
  template <class F>
  void watch_end(F f) const {
    FutureCore& core = state("watch()");
    const auto run = [](void* function, FutureCore& of) { (*static_cast<F*>(function))(of); };
    if (core.ready.is_set())
      core.run_now(&f, run);
    else
      core.add(FutureCallback(std::move(f), run));
  }
  /// on_end() for one who would like to know, and does not keep the call from being cancelled.
  template <class F>
  void watch_for_end(F f) const {
    FutureCore& core = state("watch_for_end()");
    const auto run = [](void* function, FutureCore& of) { (*static_cast<F*>(function))(of.error()); };
    if (core.ready.is_set())
      core.run_now(&f, run);
    else
      core.add_for_end(FutureCallback(std::move(f), run), false);
  }
  /// cancel() of it, as long as there is somebody else who keeps it.
  std::function<void()> canceller() const;
  /// For futures that are made from this one: they want it until they have their result. `number`: of the
  /// source.
  Source as_source(uint64_t number = 0) const;
  /// What all handles on this value share.
  FutureCore& core() const { return state("core()"); }
  /// The same for one who does not keep it.
  std::weak_ptr<FutureCore> weak_core() const { return core_; }

  FutureBase() : core_() {}
  FutureBase(const FutureBase& o);
  FutureBase(FutureBase&& o) noexcept : core_(std::move(o.core_)) {}
  FutureBase& operator=(FutureBase o) noexcept {
    core_.swap(o.core_);
    return *this;
  }
  // An empty pointer needs no destructor: of the many futures that were moved from, nothing is left to
  // compile.
  ~FutureBase() {
    if (core_) let_go();
  }

 protected:
  explicit FutureBase(std::shared_ptr<FutureCore> core);
  FutureCore& state(const char* use) const {
    if (!core_) [[unlikely]]
      throw_empty_future(use);
    return *core_;
  }
  /// Blocks until it is ready.
  FutureCore& wait_ready() const;
  /// See Future::take_origin(); empty if there is none.
  FutureBase take_origin_base();
  static constexpr uint64_t kOtherForm = 1;  // number of a source

  union {
    std::shared_ptr<FutureCore> core_;
  };

 private:
  void let_go();
};

/// What a Promise has that does not depend on the type of its value.
class PromiseBase {
 public:
  bool fail(Error error) const;
  /// Whether there is a future of it, or there is somebody who wants its result.
  bool wanted() const { return state("wanted()").readers != 0; }
  /// What the futures of this promise wait for, in place of what they waited for before. Only for promises
  /// whose future() was asked for once: the source is let go of when that has gone.
  void waits_for(Source source) const;
  /// What all handles on its value share.
  FutureCore& core() const { return state("core()"); }
  /// The same for a future, unless that is ready; `number`: of the source.
  void waits_unless_ready(const FutureBase& future, uint64_t number = 0) const;

  PromiseBase(const PromiseBase& o);
  PromiseBase(PromiseBase&& o) noexcept : core_(std::move(o.core_)) {}
  PromiseBase& operator=(PromiseBase o) noexcept {
    core_.swap(o.core_);
    return *this;
  }
  ~PromiseBase() {
    if (core_) let_go();
  }

 protected:
  explicit PromiseBase(std::shared_ptr<FutureCore> core) : core_(std::move(core)) {}  // has one writer
  FutureCore& state(const char* use) const {
    if (!core_) [[unlikely]]
      throw_empty_promise(use);
    return *core_;
  }
  /// With the exception in flight.
  bool fail_with_current() const;

  union {
    std::shared_ptr<FutureCore> core_;
  };

 private:
  void let_go();
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
class [[nodiscard]] Future : public FutureBase {
 public:
  using value_type = T;
  Future() = default;  ///< empty
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
  const Result<T>& wait() const& { return result_of(wait_ready()); }
  Result<T> wait() const&& { return wait(); }
  /// The result if it is there, else null. Valid as long as this future.
  const Result<T>* peek() const& {
    FutureCore& core = state("peek()");
    return core.ready.is_set() ? &result_of(core) : nullptr;
  }
  const Result<T>* peek() const&& = delete;  // name the future: its result goes with the last handle on it

  /// Calls f(const Result<T>&) when the result is there. What f throws is logged.
  template <class F>
  void on_ready(F f) const {
    FutureCore& core = state("on_ready()");
    if (!core.ready.is_set()) core.add_reader();  // for ever: f wants the result
    call_with_result(core, f);
  }
  /// The same for one who would like to know, and does not keep the call from being cancelled.
  template <class F>
  void watch(F f) const {
    call_with_result(state("watch()"), f);
  }
  /// Future of f(value), or of what the future that f returns gives; an error passes by f. What f throws
  /// becomes the new future's error.
  template <class F>
  auto then(F f) const {
    using U = typename ThenResult<F, T>::type;
    using V = typename IsFuture<U>::Value;
    state("then()");
    Promise<V> promise;
    promise.waits_unless_ready(*this);
    watch([promise, f = std::move(f)](const Result<T>& r) mutable {
      if (!r.ok()) return (void)promise.fail(r.error());
      promise.template settle<U>([&]() -> U {
        if constexpr (std::is_void_v<T>)
          return f();
        else
          return f(r.value());
      });
    });
    return promise.future();
  }
  /// The value if there is one; else f(const Error&) gives another, or a future of one, or throws an error in
  /// its place. An error that names what the caller can do next (ErrorKind) is worth keeping.
  template <class F>
  Future recover(F f) const {
    using U = std::invoke_result_t<F&, const Error&>;
    static_assert(std::is_same_v<typename IsFuture<U>::Value, T>,
                  "recover: the function gives what the future would have given, or a future of that");
    state("recover()");
    Promise<T> promise;
    promise.waits_unless_ready(*this);
    watch([promise, f = std::move(f)](const Result<T>& r) mutable {
      if (r.ok()) return (void)promise.complete(r);
      promise.template settle<U>([&]() -> U { return f(r.error()); });
    });
    return promise.future();
  }

  /// then(f), for an f that only gives the value in another form, and is not called if nobody asks for that:
  /// see take_origin().
  template <class F>
  auto in_form(F f) const {
    using V = std::invoke_result_t<F&, const T&>;
    state("in_form()");
    Promise<V> promise;
    const Future<V> made = promise.future();
    promise.waits_unless_ready(*this, kOtherForm);
    watch([promise, f = std::move(f)](const Result<T>& r) mutable {
      if (!promise.wanted()) return;
      if (r.ok())
        promise.complete_with([&] { return f(r.value()); });
      else
        promise.fail(r.error());
    });
    return made;
  }
  /// The `Future<U>` whose in_form() gave this one, in its place, which is empty then; an empty one, and this
  /// one stays, if it is no such future, if the value is there, or if somebody else could ask for either of
  /// them.
  template <class U>
  Future<U> take_origin() {
    return Future<U>(take_origin_base());
  }

 private:
  friend class Promise<T>;
  template <class>
  friend class Future;
  explicit Future(std::shared_ptr<FutureCore> core) : FutureBase(std::move(core)) {}
  explicit Future(FutureBase&& of_this_type) noexcept : FutureBase(std::move(of_this_type)) {}
  static const Result<T>& result_of(const FutureCore& core) {
    return static_cast<const FutureState<T>&>(core).result;
  }
  template <class F>
  static void call_with_result(FutureCore& core, F& f) {
    const auto run = [](void* function, FutureCore& of) { (*static_cast<F*>(function))(result_of(of)); };
    if (core.ready.is_set())
      core.run_now(&f, run);
    else
      core.add(FutureCallback(std::move(f), run));
  }
};

/// The writing end of a Future. Copies refer to the same one. The first completion wins; later ones return
/// false. If all copies go without a completion, the future fails with `cancelled`: nothing waits for ever.
template <class T>
class Promise : public PromiseBase {
 public:
  Promise() : PromiseBase(make_future_state<T>()) {}
  Future<T> future() const {
    state("future()");
    return Future<T>(core_);
  }

  bool set(NonVoid<T> value) const { return complete(Result<T>(std::move(value))); }
  bool set() const requires std::is_void_v<T> { return set(Unit{}); }
  bool complete(Result<T> result) const {
    state("completion");
    const auto shared = core_;  // whoever waits may let go of this promise once the lock is free
    return static_cast<FutureState<T>&>(*shared).complete(std::move(result));
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
      return fail_with_current();
    }
  }
  /// Completes when the future that f returns does, with the same; or now, with what f throws.
  template <class F>
  void complete_from(F&& f) const {
    try {
      const Future<T> next = f();
      if (!next.valid()) throw_gave_empty_future();
      next.on_ready([promise = *this](const Result<T>& r) { promise.complete(r); });
    } catch (...) {
      fail_with_current();
    }
  }
  /// Completes with what f, of result type U, gives or throws; if that is a future, waits for it.
  template <class U, class F>
  void settle(F&& f) const {
    if constexpr (IsFuture<U>::value) {
      try {
        const U next = f();
        if (!next.valid()) throw_gave_empty_future();
        waits_for(next.as_source());
        next.watch([promise = *this](const Result<T>& r) { promise.complete(r); });
      } catch (...) {
        fail_with_current();
      }
    } else {
      complete_with(f);
    }
  }
};

}  // namespace troupe
