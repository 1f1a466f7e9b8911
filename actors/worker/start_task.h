// A task that is no method's result, as a future: what a hook or a rule begins, and nobody awaits at once.
#pragma once
#include <optional>
#include <utility>

#include "actors/cell/detached.h"
#include "actors/cell/in_use.h"
#include "actors/cell/task.h"

namespace troupe::internal::actors {

/// A call without actor and message, in which the task runs: it ends where it waits once it is cancelled.
/// `failed` hears if it is.
Ref<Invocation> call_of_task(std::function<void(const Error&)> failed);
/// The frame of this thread, in such a call.
CallFrame frame_in(Invocation& call);
/// Of the actor that this thread works for, if any.
std::optional<InUse> in_use_here();
/// Cancels `call` when nobody wants the future any more.
Source source_of_task(const Ref<Invocation>& call);

// Parameters end last to first: the object outlives the coroutine that works on it.
template <class R>
Detached run_task(std::optional<InUse>, Ref<Invocation> call, Promise<R> promise, Task<R> task) {
  try {
    if constexpr (std::is_void_v<R>) {
      co_await std::move(task);
      promise.set();
    } else {
      promise.set(co_await std::move(task));
    }
  } catch (...) {
    promise.fail(current_error());
  }
  call->complete(Value());
}

/// Begins `task` now, in the frame of this thread and on it; where it waits, others go on, and it does in the
/// mailbox of the actor that this thread works for (outside actors: on the thread that brings what it waits
/// for). If nobody wants the future any more, the task is ended where it waits, and so are calls that it
/// made.
template <class R>
Future<R> start_task(Task<R> task) {
  Promise<R> promise;
  Future<R> future = promise.future();
  const Ref<Invocation> call = call_of_task([promise](const Error& why) { promise.fail(why); });
  promise.waits_for(source_of_task(call));
  const CallFrameScope scope(frame_in(*call));
  run_task<R>(in_use_here(), call, std::move(promise), std::move(task));
  return future;
}

}  // namespace troupe::internal::actors
