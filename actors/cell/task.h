// Task<T>: the result type of a method that waits. co_await on a Future or a Task gives way to other
// messages.
#pragma once
#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "actors/cell/invocation.h"
#include "actors/cell/suspension.h"
#include "core/async/future.h"
#include "core/graph/node.h"

namespace troupe {

template <class T = void>
class [[nodiscard]] Task;

namespace internal::actors {

template <class T>
struct FutureAwaiter {
  Future<T> future;
  std::shared_ptr<Suspension> suspension = nullptr;
  bool await_ready() const { return future.is_ready() && !Suspension::stops_here(); }
  void await_suspend(std::coroutine_handle<> coroutine) {
    suspension = std::make_shared<Suspension>(coroutine);
    // `this` may be gone as soon as the coroutine goes on or is ended, on another thread or by announce().
    // The future is the coroutine's: if that is destroyed, nobody wants the value.
    auto waiting = suspension;
    const Future<T> awaited = future;
    waiting->announce();
    awaited.watch([waiting](const Result<T>&) { waiting->resume(); });
  }
  T await_resume() const {
    if (suspension) suspension->check();
    if constexpr (std::is_void_v<T>)
      (void)future.peek()->value();
    else
      return future.peek()->value();
  }
};

template <class T>
struct TaskPromiseBase {
  std::coroutine_handle<> continuation = std::noop_coroutine();
  std::exception_ptr error;
  std::suspend_always initial_suspend() noexcept { return {}; }
  auto final_suspend() noexcept {
    struct Final {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<>) noexcept { return next; }
      void await_resume() noexcept {}
      std::coroutine_handle<> next;
    };
    return Final{continuation};
  }
  void unhandled_exception() { error = std::current_exception(); }
};
template <class T>
struct TaskPromise : TaskPromiseBase<T> {
  std::optional<T> value;
  Task<T> get_return_object();
  void return_value(T v) { value.emplace(std::move(v)); }
  T take() { return std::move(*value); }
};
template <>
struct TaskPromise<void> : TaskPromiseBase<void> {
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
    if (!handle_ || handle_.done()) [[unlikely]]
      throw_invalid(handle_ ? "[task] was awaited before: a task runs once"
                            : "[task] an empty task was awaited: it was moved from");
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

namespace internal::actors {

/// The outermost coroutine of a call; frees itself.
struct Detached {
  struct promise_type {
    template <class InUse, class... Rest>
    promise_type(InUse&, Ref<Invocation>& invocation, Rest&...) {
      invocation->runs_as(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

}  // namespace internal::actors
}  // namespace troupe
