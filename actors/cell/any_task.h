// A task of a method, whatever it gives: what runs it is compiled once.
#pragma once
#include <coroutine>
#include <exception>
#include <utility>

#include "actors/cell/task.h"
#include "core/codec/codec.h"

namespace troupe::internal::actors {

class Invocation;

/// Gives its result as the Value that travels.
class AnyTask {
 public:
  template <class R>
  explicit AnyTask(Task<R> task) : handle_(std::exchange(task.handle_, nullptr)), take_(&take<R>) {
    if (handle_) promise_ = &Task<R>::Handle::from_address(handle_.address()).promise();
  }
  AnyTask(AnyTask&& o) noexcept
      : handle_(std::exchange(o.handle_, nullptr)), promise_(o.promise_), take_(o.take_) {}
  AnyTask& operator=(AnyTask&&) = delete;
  ~AnyTask() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const {
    check_awaitable(handle_);
    return false;
  }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) const {
    promise_->continuation = caller;
    return handle_;
  }
  Value await_resume() const {
    if (promise_->error) std::rethrow_exception(promise_->error);
    return take_(*promise_);
  }

 private:
  template <class R>
  static Value take(TaskPromiseBase& promise) {
    if constexpr (std::is_void_v<R>)
      return {};
    else
      return to_value(static_cast<TaskPromise<R>&>(promise).take());
  }
  std::coroutine_handle<> handle_;
  TaskPromiseBase* promise_ = nullptr;
  Value (*take_)(TaskPromiseBase& promise);
};

/// Runs the task of a method in the actor's mailbox, and completes the call with what it gives or throws.
void finish(Invocation& invocation, AnyTask task);

}  // namespace troupe::internal::actors
