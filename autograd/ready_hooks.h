// Hooks that run when the gradient of a parameter is final in a pass: after accumulation, and even without.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "core/async/future.h"
#include "core/graph/node.h"

namespace troupe::autograd {

/// The gradients that a pass of a context has brought to leaves of this worker so far. A pass that fails
/// drops them, and their use is `cancelled` then. A hook has it until it waits no more. Thread-safe.
class PassGradients {
 public:
  virtual ~PassGradients() = default;
  /// Of the context, and of the pass: the same on all workers that it comes by.
  virtual uint64_t context() const = 0;
  virtual uint64_t number() const = 0;
  /// What the context has for the leaf, of all passes.
  virtual Tensor total(const Tensor& leaf) const = 0;
  /// The gradient of the leaf, which then has nothing of the pass; undefined: none came. Other passes keep
  /// theirs.
  virtual Tensor take(const Tensor& leaf) = 0;
  /// Adds to it, also if the leaf is frozen here. `grad` is kept as it is: nobody may change it any more.
  virtual void add(const Tensor& leaf, Tensor grad) = 0;
};

/// A ready hook that may wait: the pass is over when the future is ready. An empty one: at once. It asks
/// `pass` for the gradient, which nobody else holds then.
using WaitingHook = std::function<Future<void>(size_t index, const std::shared_ptr<PassGradients>& pass)>;

/// Owns a registration; its hooks are removed when it goes. Movable. Not to be used while a backward pass on
/// another thread may reach the hook.
class WatchHandle {
 public:
  WatchHandle() = default;
  WatchHandle(WatchHandle&& o) noexcept = default;
  WatchHandle& operator=(WatchHandle&& o) noexcept;
  ~WatchHandle() { remove(); }
  /// Removes the hooks now; also from inside one.
  void remove();

 private:
  class Set;
  using Told =
      std::function<Future<void>(size_t index, const Tensor& total, const std::shared_ptr<PassGradients>&)>;
  friend WatchHandle register_post_accumulate_grad_hook(const Tensor&, std::function<void(const Tensor&)>);
  friend WatchHandle register_ready_hook(const Tensors&, std::function<void(size_t, const Tensor&)>);
  friend WatchHandle register_ready_hook(const Tensors&, WaitingHook);
  static WatchHandle watch(const char* what, const Tensors& leaves, Told hook, bool without, bool may_wait);
  std::vector<Edge> edges_;  // keep the accumulators of the leaves, which only graphs hold otherwise
  std::shared_ptr<Set> set_;
};

/// Calls `hook` once in every pass that brings `leaf` a gradient, after it was added: with `.grad`, or in a
/// distributed context with the gradient that the context then has for the leaf. (PyTorch's
/// register_post_accumulate_grad_hook.) On the thread of the pass; in a distributed one as a part of the work
/// of the actor. What it throws fails the pass. `invalid` unless `leaf` is a leaf that needs a gradient.
[[nodiscard]] WatchHandle register_post_accumulate_grad_hook(const Tensor& leaf,
                                                             std::function<void(const Tensor& grad)> hook);

/// For work that overlaps the rest of the pass, such as sending gradients away: in every pass that reaches
/// one of `params`, calls `hook(i, grad)` exactly once for each i, as soon as nothing more can come for
/// params[i], with the gradient as above. `grad` is undefined where the pass brought none: told when that is
/// certain, for parameters that the pass does not reach when nothing of it is under way any more.
///
/// A distributed pass reaches params if it reaches the graph of one of them on this worker; it ends when all
/// hooks have run. Passes in which messages share a parameter with a hook are exact, if the hook was there
/// before the forward pass. A pass that fails leaves out the rest.
[[nodiscard]] WatchHandle register_ready_hook(const Tensors& params,
                                              std::function<void(size_t index, const Tensor& grad)> hook);
/// The same for a hook that waits, or that takes gradients out of the pass while that runs: for a reduction
/// over other workers, say. `pass` moves the pass's own part, so a pass that fails still leaves gradients as
/// they were. The pass waits for such hooks when all of them have been told, so that they may wait for each
/// other's partners. Only passes of contexts have them; a local one is `invalid` before anything has run.
/// `params` may be frozen (requires_grad_(false)), now or later: while one is, no pass brings it a gradient.
[[nodiscard]] WatchHandle register_ready_hook(const Tensors& params, WaitingHook hook);

}  // namespace troupe::autograd
