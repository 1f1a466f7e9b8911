// Hooks that run when the gradient of a parameter is final in a pass: after accumulation, and even without.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/base/mutex.h"
#include "core/graph/node.h"

namespace troupe::autograd {

/// Hears of a set of leaves, once per pass and leaf, when nothing more can come for it.
class LeafWatch {
 public:
  virtual ~LeafWatch() = default;
  /// `total`: the gradient of leaf number `index` with what the pass has added; undefined: it added none. On
  /// a thread of the pass. What it throws fails the pass.
  virtual void told(size_t index, const Tensor& total) = 0;
  /// How many leaves are in the set.
  virtual size_t count() const = 0;
};

/// Whether a LeafWatch was registered for the leaf.
bool is_watched(const Accumulate& leaf);

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
  friend WatchHandle watch(const char*, const Tensors&, std::function<void(size_t, const Tensor&)>, bool);
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
/// certain, for parameters that the pass does not reach at its end.
///
/// A distributed pass reaches params if it reaches the graph of one of them on this worker; it ends when all
/// hooks have run. Passes in which messages share a parameter with a hook are exact, if the hook was there
/// before the forward pass. A pass that fails leaves out the rest.
[[nodiscard]] WatchHandle register_ready_hook(const Tensors& params,
                                              std::function<void(size_t index, const Tensor& grad)> hook);

/// What the sets of watched leaves were told in one pass. Thread-safe; the hooks run outside its lock.
class HookBatch {
 public:
  /// The pass has nothing more for `leaf`, whose gradient is `total`, or undefined if it brought none.
  void settled(const Accumulate& leaf, const Tensor& total);
  /// The pass is over: tells of the leaves that it did not reach.
  void finish();

 private:
  internal::Mutex mutex_;
  std::map<std::shared_ptr<LeafWatch>, std::set<size_t>> told_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::autograd
