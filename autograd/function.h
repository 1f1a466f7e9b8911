// Functions of one's own: a forward function, and the rule for its gradient.
#pragma once
#include <utility>

#include "autograd/function_call.h"
#include "autograd/function_ctx.h"

namespace troupe::autograd {

/// A function of one's own, one step for every pass whatever it computes:
///
///   struct Square : autograd::Function<Square> {
///     static Tensor forward(Ctx& ctx, Tensor x) {
///       ctx.save_for_backward({x});
///       return x * x;
///     }
///     static Tensors backward(Ctx& ctx, Tensors grads) { return {grads[0] * 2 * ctx.saved_tensors()[0]}; }
///   };
///   Tensor y = Square::apply(x);
///
/// forward() gives a Tensor or Tensors, and takes a Ctx& and anything; it runs with grad mode off, so what
/// needs a gradient has to be an argument: a Tensor, one that may be undefined, a std::optional<Tensor> or
/// Tensors. It must not write to arguments that need a gradient.
///
/// backward() gets the gradients of all results and gives one per argument, in order: undefined for those
/// that are no tensors or need none, one for each tensor of a list. Written with operators it can be
/// differentiated again. `static constexpr bool once_differentiable = true` says that it is not (as when it
/// computes in loops of its own): it runs with grad mode off, and a second derivative is refused. A gradient
/// whose argument was broadcast is summed to the argument's shape and has its dtype in the end.
///
/// Both may run on any thread, at different times, and backward() again under retain_graph; passes on several
/// threads take turns. `invalid` errors start with [Square].
///
/// A backward() that waits for others is a Task: `static Task<Tensors> backward(Ctx&, Tensors grads)`, with
/// co_await. It runs as work of the actor that called apply(), once in each pass of a context that reaches
/// it, also if no gradient came (then with zeros, or undefined ones); several passes run it at a time. A pass
/// that comes by some parts of a call of several actors (ActorMesh::call) and not by others is refused, since
/// those might wait for these. One that fails ends it where it waits. A local backward() or grad() refuses it
/// before anything has run.
template <class T>
struct Function {
  using Ctx = FunctionCtx;

  /// forward(ctx, arguments...), recorded. Results that share elements with an argument, or with each other,
  /// are views, to which no write in place is recorded.
  template <class... A>
  static auto apply(A&&... arguments) {
    return FunctionCall<T, decltype(&T::forward)>::run(std::forward<A>(arguments)...);
  }
};

}  // namespace troupe::autograd
