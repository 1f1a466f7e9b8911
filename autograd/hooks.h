// Functions that see, or replace, the gradient of a tensor on its way.
#pragma once
#include <functional>
#include <memory>

#include "core/graph/node.h"

namespace troupe::autograd {

/// Owns a registration: the hook is removed when this goes away. Movable. Not to be used while a backward
/// pass on another thread may reach the hook.
class HookHandle {
 public:
  using Function = std::function<Tensor(const Tensor&)>;

  HookHandle() = default;
  HookHandle(HookHandle&& o) noexcept : edge_(std::move(o.edge_)), hook_(std::move(o.hook_)) {}
  HookHandle& operator=(HookHandle&& o) noexcept;
  ~HookHandle() { remove(); }

  /// Removes the hook now; also from inside the hook.
  void remove();
  /// Leaves the hook in place: with a leaf as long as that lives, with a result as long as the graph that
  /// holds it.
  void keep();

 private:
  using Shared = std::shared_ptr<Function>;  // what it points at is empty once removed
  friend HookHandle register_hook(const Tensor&, Function);
  Edge edge_;  // keeps the accumulator of a leaf, which only graphs hold otherwise
  std::shared_ptr<Shared> hook_;
};

/// Calls `hook` with the gradient of `tensor` in every backward pass that reaches it, on the thread of the
/// pass, when that gradient is complete; for a leaf, before it is accumulated. A defined result replaces the
/// gradient; it must have the same shape and dtype (`invalid` otherwise). Hooks of one tensor run in order of
/// registration. A hook that holds the tensor itself keeps it alive. Where a checkpoint runs its function
/// again, nothing is registered: the first run did. `invalid` if the tensor needs no gradient.
[[nodiscard]] HookHandle register_hook(const Tensor& tensor, HookHandle::Function hook);

}  // namespace troupe::autograd
