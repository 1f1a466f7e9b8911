// The scope of one distributed forward and backward pass.
#pragma once
#include "autograd/dist/engine.h"

namespace troupe::autograd {

struct BackwardOptions {
  Duration timeout = std::chrono::seconds(60);  ///< of the wait; zero: none
  bool retain_graph = false;  ///< keep what the forward pass saved, for another pass over the same graph
};

/// While one is alive on a thread, remote calls made there (and the calls that these make) record how
/// gradients run back. Gradients are kept in the context, on the workers that own the parameters: `.grad` is
/// never touched, so contexts on several threads do not meet. The end of the scope frees everything on all
/// workers.
///
///   autograd::Context step(cluster);
///   Tensor loss = cross_entropy(b.call<&Output::forward>(a.call<&Hidden::forward>(x)).get(), y);
///   step.backward(loss);
///   optimizer.step(step);
///
/// Belongs to the thread that made it; scopes nest. Other threads take part with Context::Guard.
class Context {
 public:
  explicit Context(actors::Worker& worker);
  ~Context();
  Context(const Context&) = delete;

  /// Runs back from `root`, a tensor of one element, or any tensor with the gradient given. Returns when
  /// every gradient is where it belongs. Throws the first error of any worker: `disconnected` names a lost
  /// one; `deadline` after the timeout.
  /// Frees what was saved as it goes, unless told to retain it: a second pass over the same graph then throws
  /// `invalid`. A second pass over other results adds its gradients. After an error the context may have a
  /// part of the gradients of the pass: end it.
  void backward(const Tensor& root, const Tensor& grad = {}, BackwardOptions options = {});
  void backward(const Tensors& roots, const Tensors& grads, BackwardOptions options = {});
  /// The same without waiting; the timeout is not used.
  Future<void> backward_async(const Tensors& roots, const Tensors& grads = {}, BackwardOptions options = {});

  /// Gradient of a leaf of this worker, as it is now; undefined if none arrived. `invalid` once the context
  /// has ended.
  Tensor grad(const Tensor& leaf) const { return engine_.gradient(id_, leaf); }

  /// Ends the context now; ready when it has been freed on every worker.
  Future<void> end();

  uint64_t id() const { return id_; }
  actors::Worker& worker() const { return worker_; }

  /// Makes another thread part of the context for a scope; `invalid` once the context has ended.
  class Guard {
   public:
    explicit Guard(const Context& context);

   private:
    FrameScope scope_;
  };

 private:
  actors::Worker& worker_;
  DistEngine& engine_;
  uint64_t id_;
  FrameScope scope_;
};

/// Inside an actor's method: the gradient of a leaf of this worker in the context of the call being handled.
Tensor context_gradient(const Tensor& leaf);

}  // namespace troupe::autograd
