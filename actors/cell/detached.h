// The outermost coroutine of a call.
#pragma once
#include <coroutine>
#include <exception>

#include "actors/cell/invocation.h"

namespace troupe::internal::actors {

/// Frees itself. Its parameters begin with what keeps the object that it works on, and its call.
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

}  // namespace troupe::internal::actors
