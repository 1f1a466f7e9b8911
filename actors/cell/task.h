// Task<T>: the result type of a method that waits. co_await on a Future or a Task gives way to other
// messages.
#pragma once
#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "actors/cell/suspension.h"
#include "core/async/future.h"

namespace troupe {

template <class T = void>
class [[nodiscard]] Task;

namespace internal::actors {

class AnyTask;

/// `invalid` unless it is a task's, and has not been awaited.
void check_awaitable(std::coroutine_handle<> task);

/// The coroutine goes on once the future has its result. `suspension` is set before that: it lies in what the
/// coroutine keeps, as the future does, and is gone as soon as that goes on or is ended.
void suspend_until(const FutureBase& future, std::coroutine_handle<> coroutine,
                   std::shared_ptr<Suspension>& suspension);

template <class T>
struct FutureAwaiter {
  Future<T> future;
  std::shared_ptr<Suspension> suspension = nullptr;
  bool await_ready() const { return future.is_ready() && !Suspension::stops_here(); }
  void await_suspend(std::coroutine_handle<> coroutine) { suspend_until(future, coroutine, suspension); }
  T await_resume() const {
    if (suspension) suspension->check();
    if constexpr (std::is_void_v<T>)
      (void)future.peek()->value();
    else
      return future.peek()->value();
  }
};

struct TaskPromiseBase {
  std::coroutine_handle<> continuation = std::noop_coroutine();
  std::exception_ptr error;
  struct Final {
    bool await_ready() noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<>) noexcept { return next; }
    void await_resume() noexcept {}
    std::coroutine_handle<> next;
  };
  std::suspend_always initial_suspend() noexcept { return {}; }
  Final final_suspend() noexcept { return {continuation}; }
  void unhandled_exception() { error = std::current_exception(); }
};
template <class T>
struct TaskPromise : TaskPromiseBase {
  std::optional<T> value;
  Task<T> get_return_object();
  void return_value(T v) { value.emplace(std::move(v)); }
  T take() { return std::move(*value); }
};
template <>
struct TaskPromise<void> : TaskPromiseBase {
  Task<void> get_return_object();
  void return_void() {}
  void take() {}
};

}  // namespace internal::actors

/// Lazy: runs when awaited (or when it is a method's result), once. Owns its coroutine. Arguments of a
/// coroutine method are taken by value. `co_await f()`, or later: `const Task<Tensor> m = f(); ... co_await
/// m`.
template <class T>
class Task {
 public:
  using promise_type = internal::actors::TaskPromise<T>;
  using Handle = std::coroutine_handle<promise_type>;
  explicit Task(Handle h) : handle_(h) {}
  Task(Task&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const {
    internal::actors::check_awaitable(handle_);
    return false;
  }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) const {
    handle_.promise().continuation = caller;
    return handle_;
  }
  T await_resume() const {
    if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
    return handle_.promise().take();
  }

 private:
  friend class internal::actors::AnyTask;
  Handle handle_;
};

template <class T>
Task<T> internal::actors::TaskPromise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<TaskPromise<T>>::from_promise(*this));
}
inline Task<void> internal::actors::TaskPromise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<TaskPromise<void>>::from_promise(*this));
}

template <class T>
internal::actors::FutureAwaiter<T> operator co_await(Future<T> future) {
  return {std::move(future), nullptr};
}

}  // namespace troupe
