#include "actors/cell/any_task.h"

#include "actors/cell/detached.h"
#include "actors/cell/in_use.h"

namespace troupe::internal::actors {
namespace {

// Parameters end last to first: the object outlives the coroutine that works on it.
Detached run(InUse, Ref<Invocation> invocation, AnyTask task) {
  try {
    invocation->complete(co_await task);
  } catch (...) {
    invocation->threw(current_error());
  }
}

}  // namespace

void check_awaitable(std::coroutine_handle<> task) {
  if (!task || task.done()) [[unlikely]]
    throw_invalid(task ? "[task] was awaited before: a task runs once"
                       : "[task] an empty task was awaited: it was moved from");
}

void finish(Invocation& invocation, AnyTask task) {
  run(InUse(invocation.cell()), Ref<Invocation>(&invocation), std::move(task));
}

}  // namespace troupe::internal::actors
