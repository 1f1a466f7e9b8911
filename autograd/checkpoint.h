// Activation recomputation: memory for time.
#pragma once
#include <functional>
#include <type_traits>

#include "core/tensor/tensor.h"

namespace troupe::autograd {

/// The general form of checkpoint(): any number of inputs and results.
Tensors checkpoint_all(std::function<Tensors(const Tensors&)> fn, const Tensors& inputs);

/// fn(inputs...), without keeping what its steps save for the backward pass: when the pass reaches them, fn
/// runs a second time and makes it again. fn takes `const Tensor&`s and returns a Tensor or Tensors.
///
///   Tensor y = autograd::checkpoint([&block](const Tensor& x) { return block(x); }, x);
///
/// The graph itself is the one that fn records, so everything that holds for it holds here: gradients of
/// captured parameters, grad(), hooks, create_graph, distributed contexts, several passes, checkpoints inside
/// checkpoints; and gradients have the same bits with and without. Random numbers are drawn again from where
/// each Generator was, with the same numbers of streams (core/base/seed_stream.h), and leaves them as they
/// were.
///
/// fn is kept, and with it what it captures, until the graph goes; what it captures by reference must live as
/// long. It must compute the same both times: other shapes, or another number of steps, are an `invalid`
/// error in the backward pass, and so are inputs or parameters that were written in place in between. Calls
/// of remote methods inside fn that would be recorded are `unimplemented`: checkpoint inside the method
/// instead. What was made again is kept until its steps have run; with retain_graph, as long as the graph.
/// The second run is on the thread of the pass.
template <class F, class... Inputs>
requires(std::is_same_v<Inputs, Tensor>&&...) auto checkpoint(F fn, const Inputs&... inputs) {
  using Result = std::invoke_result_t<F&, const Inputs&...>;
  auto all = [fn = std::move(fn)](const Tensors& in) mutable -> Tensors {
    return [&]<size_t... I>(std::index_sequence<I...>)->Tensors {
      if constexpr (std::is_same_v<Result, Tensors>)
        return fn(in[I]...);
      else
        return {fn(in[I]...)};
    }
    (std::index_sequence_for<Inputs...>());
  };
  Tensors out = checkpoint_all(std::move(all), Tensors{inputs...});
  if constexpr (std::is_same_v<Result, Tensors>)
    return out;
  else
    return std::move(out[0]);
}

}  // namespace troupe::autograd
