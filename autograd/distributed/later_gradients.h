// Functions of one's own whose gradient waits: autograd::Function with a backward() that is a Task.
#pragma once
#include <type_traits>
#include <utility>

#include "actors/worker/start_task.h"
#include "autograd/function.h"

namespace troupe::autograd {

/// Runs in the frame and mailbox of who begins it, and is ended if nobody wants the gradients any more.
template <class R>
requires(std::is_same_v<R, Tensor> || std::is_same_v<R, Tensors>) struct LaterGradients<Task<R>> {
  static constexpr bool kLater = true;
  static Future<Tensors> begin(Task<R> task, FinishGradients finish) {
    return internal::actors::start_task<Tensors>(finished(std::move(finish), std::move(task)));
  }

 private:
  // Parameters end last to first: `finish` outlives what it keeps.
  static Task<Tensors> finished(FinishGradients finish, Task<R> task) {
    R out = co_await std::move(task);
    if constexpr (std::is_same_v<R, Tensors>)
      co_return finish(std::move(out));
    else
      co_return finish(Tensors{std::move(out)});
  }
};

}  // namespace troupe::autograd
