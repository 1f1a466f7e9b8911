// The scope of one distributed forward and backward pass.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/async/future.h"
#include "core/base/call_frame.h"
#include "core/base/clock.h"
#include "core/tensor/tensor.h"

namespace troupe::internal::actors {
class Worker;
}  // namespace troupe::internal::actors

namespace troupe::autograd {

class DistEngine;

struct BackwardOptions {
  Duration timeout = std::chrono::seconds(60);  ///< of the wait; zero: none
  bool retain_graph = false;  ///< keep what the forward pass saved, for another pass over the same graph
  /// Record the pass on all workers, so that gradients have gradients; what the forward pass saved is kept.
  /// docs/howto/second-derivatives.md has examples.
  bool create_graph = false;
  /// The gradients go to the tensors that actors gave set_context_inputs(), leaves or results, and nowhere
  /// else; only what leads to these runs. `invalid` if the pass comes by no actor that has any.
  bool only_inputs = false;
};

/// While one is alive on a thread, remote calls made there (and the calls that these make) record how
/// gradients run back. Gradients are kept in the context, on the workers that own the parameters: `.grad` is
/// never touched, so contexts on several threads do not meet. The end of the scope frees everything on all
/// workers. So does the end of the cluster: what is called here afterwards is refused.
///
///   autograd::Context step(cluster);
///   Tensor loss = cross_entropy(b(a(x)).get(), y);
///   step.backward(loss);
///   optimizer.step(step);
///
/// Belongs to the thread that made it; scopes nest. Other threads take part with Context::Guard.
class Context {
 public:
  explicit Context(internal::actors::Worker& worker);
  /// Inside an actor's method: of its worker. In a coroutine co_await backward_async().
  Context();
  ~Context();
  Context(const Context&) = delete;

  /// Runs back from `root`, a tensor of one element, or any tensor with the gradient given. Returns when
  /// every gradient is where it belongs. Throws the first error of any worker: `disconnected` names a lost
  /// one; `deadline` after the timeout.
  /// Frees what was saved as it goes, unless told to retain it: a second pass over the same graph then throws
  /// `invalid`. A second pass over other results adds its gradients.
  /// With create_graph the gradients keep their history in the context, and a later pass adds to them: take
  /// them out (take_context_gradient) to have the second order alone.
  /// A pass that fails leaves the gradients of the context as they were before it. After `disconnected`,
  /// `deadline` and `cancelled` the error does not wait for that: a worker may hear of it a moment later.
  void backward(const Tensor& root, const Tensor& grad = {}, BackwardOptions options = {});
  void backward(const Tensors& roots, const Tensors& grads, BackwardOptions options = {});
  /// The same without waiting; the timeout is not used.
  Future<void> backward_async(const Tensor& root, const Tensor& grad = {}, BackwardOptions options = {});
  Future<void> backward_async(const Tensors& roots, const Tensors& grads = {}, BackwardOptions options = {});

  /// Gradients of `outputs` (weighted by `grad_outputs`) with respect to `inputs`, leaves or results that
  /// this thread has, wherever the way between them leads. Only what leads to the inputs runs, and is freed
  /// unless retained; no gradient of the context changes. Undefined where an input is not reached. Errors as
  /// of backward().
  Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs = {},
               BackwardOptions options = {});
  Future<Tensors> grad_async(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs = {},
                             BackwardOptions options = {});

  /// Gradient of a leaf of this worker, as it is now, with a history after recorded passes; undefined if none
  /// arrived. `invalid` once the context has ended.
  Tensor grad(const Tensor& leaf) const;

  /// Ends the context now; ready when it has been freed on every worker.
  Future<void> end();

  /// Names of the workers that calls of this context went to from here, whether or not anything was recorded,
  /// and of those that keep something of it through others; in order of their numbers.
  std::vector<std::string> workers() const;

  /// Unique in the cluster. The upper bits are the number of the worker.
  uint64_t id() const { return id_; }
  internal::actors::Worker& worker() const { return worker_; }

  /// Makes another thread part of the context for a scope; `invalid` once the context has ended.
  class Guard {
   public:
    explicit Guard(const Context& context);

   private:
    std::shared_ptr<internal::actors::Worker> worker_;
    CallFrameScope scope_;
  };

 private:
  template <class T>
  T wait(const Future<T>& done, const char* what, Duration timeout);

  const std::shared_ptr<internal::actors::Worker> shared_;  // so that it is there when its cluster has ended
  internal::actors::Worker& worker_;
  DistEngine& engine_;
  uint64_t id_;
  CallFrameScope scope_;
};

/// Inside an actor's method: the gradient of a leaf of this worker in the context of the call being handled.
Tensor context_gradient(const Tensor& leaf);
/// The same, and puts `grad` in its place (undefined: none): for what changes gradients between the backward
/// pass and the step. A worker that no pass came by can be given one, too.
Tensor exchange_context_gradient(const Tensor& leaf, Tensor grad);
/// The gradient, which the context then has no more. After a recorded pass: so that the next one adds to
/// nothing. Where the context is active, also outside actors.
Tensor take_context_gradient(const Tensor& leaf);

/// Inside an actor's method: what backward passes with `only_inputs` stop at in this actor, in the context of
/// the call being handled, instead of those of before; none: forgets them. Tensors that need gradients,
/// leaves or results, each once (`invalid`); context_gradient() gives their gradients. The context keeps
/// them, so each of several contexts has its own, such as the weights of a task in meta-learning after its
/// inner steps.
void set_context_inputs(Tensors inputs);
/// Those; empty if there are none.
Tensors context_inputs();

/// Inside an actor's method: a backward pass in the context of the call being handled, from results that this
/// actor has. So a driver starts one where the root is. As Context::backward_async.
Future<void> context_backward(const Tensor& root, const Tensor& grad = {}, BackwardOptions options = {});
Future<void> context_backward(const Tensors& roots, Tensors grads = {}, BackwardOptions options = {});
/// The same for gradients of `inputs`, leaves or results that this actor has. As Context::grad_async.
Future<Tensors> context_grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs = {},
                             BackwardOptions options = {});

}  // namespace troupe::autograd
