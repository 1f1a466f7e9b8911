// A value that arrives later, or the error that it became.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/frame.h"

namespace troupe {

/// Stands for void where a value is needed.
struct Unit {
  bool operator==(const Unit&) const = default;
};
template <class T>
using NonVoid = std::conditional_t<std::is_void_v<T>, Unit, T>;

/// A value or an Error.
template <class T>
class Result {
 public:
  Result(NonVoid<T> value) : v_(std::move(value)) {}
  Result(Error error) : v_(std::move(error)) {}
  bool ok() const { return v_.index() == 0; }
  /// Throws the Error if there is one.
  const NonVoid<T>& value() const& {
    if (!ok()) throw std::get<1>(v_);
    return std::get<0>(v_);
  }
  NonVoid<T>&& value() && {
    if (!ok()) throw std::get<1>(v_);
    return std::get<0>(std::move(v_));
  }
  const Error& error() const { return std::get<1>(v_); }

 private:
  std::variant<NonVoid<T>, Error> v_;
};

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
/// the completer's.
template <class T>
class [[nodiscard]] Future {
 public:
  using value_type = T;
  Future() = default;  ///< refers to nothing; only assignment is allowed
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
  bool is_ready() const {
    std::lock_guard lock(state_->mutex);
    return state_->result.has_value();
  }
  /// Blocks until the value is there and returns it, or throws its Error. `invalid` inside an actor: co_await
  /// instead.
  T get() const {
    const Result<T>& r = wait();
    if constexpr (std::is_void_v<T>)
      (void)r.value();
    else
      return r.value();
  }
  /// Blocks until value or error is there.
  const Result<T>& wait() const {
    linger();
    std::unique_lock lock(state_->mutex);
    if (!state_->result) {
      check_may_block("Future::get");
      state_->arrived.wait(lock, [&] { return state_->result.has_value(); });
    }
    return *state_->result;
  }
  /// False if nothing arrived within `timeout`.
  bool wait_for(Duration timeout) const {
    linger();
    std::unique_lock lock(state_->mutex);
    if (!state_->result) check_may_block("Future::wait_for");
    timeout =
        std::min<Duration>(timeout, std::chrono::hours(24 * 365 * 100));  // now + timeout must be a time
    return state_->arrived.wait_for(lock, timeout, [&] { return state_->result.has_value(); });
  }
  /// The result if it is there, else null. Valid as long as this future.
  const Result<T>* peek() const {
    std::lock_guard lock(state_->mutex);
    return state_->result ? &*state_->result : nullptr;
  }

  /// Calls f(const Result<T>&) when the result is there. f must not throw.
  template <class F>
  void on_ready(F f) const {
    {
      std::lock_guard lock(state_->mutex);
      if (!state_->result) {
        state_->callbacks.push_back([f = std::move(f), at = frame()](const Result<T>& r) mutable {
          FrameScope scope(at);
          f(r);
        });
        return;
      }
    }
    f(*state_->result);
  }
  /// Future of f(value), or of what the future that f returns gives; an error passes by f. What f throws
  /// becomes the new future's error.
  template <class F>
  auto then(F f) const {
    using U = typename ThenResult<F, T>::type;
    Promise<typename IsFuture<U>::Value> promise;
    on_ready([promise, f = std::move(f)](const Result<T>& r) mutable {
      if (!r.ok()) return (void)promise.fail(r.error());
      const auto call = [&]() -> U {
        if constexpr (std::is_void_v<T>)
          return f();
        else
          return f(r.value());
      };
      if constexpr (IsFuture<U>::value)
        promise.complete_from(call);
      else
        promise.complete_with(call);
    });
    return promise.future();
  }

 private:
  friend class Promise<T>;
  struct State {
    std::mutex mutex;
    std::condition_variable arrived;
    std::optional<Result<T>> result;
    std::atomic<bool> ready{false};    // result is there; for linger()
    std::atomic<uint32_t> writers{0};  // promises that can still complete it
    std::vector<std::function<void(const Result<T>&)>> callbacks;
  };
  explicit Future(std::shared_ptr<State> s) : state_(std::move(s)) {}

  // Waking a thread that sleeps on an idle core costs 15 us and more, as much as a short call takes. So a
  // wait starts with looking, for 50 us, giving way to any other thread that could run here.
  void linger() const {
    if (frame().actor) return;
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
    while (!state_->ready.load(std::memory_order_acquire) && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
  }
  std::shared_ptr<State> state_;
};

/// The writing end of a Future. Copies refer to the same one. The first completion wins; later ones return
/// false. If all copies go without a completion, the future fails with `cancelled`: nothing waits for ever.
template <class T>
class Promise {
 public:
  Promise() : state_(std::make_shared<typename Future<T>::State>()) { ++state_->writers; }
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
  Future<T> future() const { return Future<T>(state_); }

  bool set(NonVoid<T> value) const { return complete(Result<T>(std::move(value))); }
  bool set() const requires std::is_void_v<T> { return set(Unit{}); }
  bool fail(Error error) const { return complete(Result<T>(std::move(error))); }
  bool complete(Result<T> result) const {
    const auto state = state_;  // whoever waits may let go of this promise once the lock is free
    std::vector<std::function<void(const Result<T>&)>> callbacks;
    {
      std::lock_guard lock(state->mutex);
      if (state->result) return false;
      state->result.emplace(std::move(result));
      state->ready.store(true, std::memory_order_release);
      callbacks.swap(state->callbacks);
    }
    state->arrived.notify_all();  // without the lock: the woken thread needs it
    for (auto& c : callbacks) c(*state->result);
    return true;
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

 private:
  void abandon() {
    {
      std::lock_guard lock(state_->mutex);
      if (state_->result) return;
    }
    fail(Error(ErrorKind::cancelled, "[future] whoever should have given the value has gone"));
  }
  std::shared_ptr<typename Future<T>::State> state_;
};

/// When all() gives its error.
enum class OnError {
  wait,     ///< once all have ended: the first in the order of the futures, the same whatever the timing
  at_once,  ///< as soon as one fails: the first in time; the others go on, and nobody looks at them
};

/// The values of all futures, in their order; or an error if any of them fails.
template <class T>
Future<std::vector<NonVoid<T>>> all(const std::vector<Future<T>>& futures, OnError on_error = OnError::wait) {
  struct Join {
    std::vector<Future<T>> futures;
    std::atomic<size_t> left;
    Promise<std::vector<NonVoid<T>>> promise;
  };
  auto join = std::make_shared<Join>();
  join->futures = futures;
  join->left = futures.size();
  if (futures.empty()) join->promise.set({});
  for (const auto& f : futures) {
    f.on_ready([join, on_error](const Result<T>& r) {
      if (!r.ok() && on_error == OnError::at_once) join->promise.fail(r.error());
      if (--join->left) return;
      std::vector<NonVoid<T>> values;
      for (const auto& done : join->futures) {
        if (!done.peek()->ok()) return (void)join->promise.fail(done.peek()->error());
        values.push_back(done.peek()->value());
      }
      join->promise.set(std::move(values));
    });
  }
  return join->promise.future();
}

/// The first value that arrives, with the position of its future. Fails only if all do, with the error of the
/// first in their order. `invalid` at once for no futures.
template <class T>
Future<std::pair<size_t, NonVoid<T>>> any(const std::vector<Future<T>>& futures) {
  if (futures.empty()) throw_invalid("[future] any() of no futures: nothing would ever arrive");
  struct Race {
    std::vector<Future<T>> futures;
    std::atomic<size_t> left;
    Promise<std::pair<size_t, NonVoid<T>>> promise;
  };
  auto race = std::make_shared<Race>();
  race->futures = futures;
  race->left = futures.size();
  for (size_t i = 0; i < futures.size(); ++i) {
    futures[i].on_ready([race, i](const Result<T>& r) {
      if (r.ok()) race->promise.set({i, r.value()});
      if (--race->left) return;
      if (const auto* first = race->futures.front().peek(); !first->ok()) race->promise.fail(first->error());
    });
  }
  return race->promise.future();
}

}  // namespace troupe
