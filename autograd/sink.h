// The place that gradients of a pass go to.
#pragma once
#include <cstdint>

#include "core/graph/node.h"
#include "core/tensor/tensor.h"

namespace troupe::internal::autograd {

/// Receives the gradients of leaves, one call per leaf and pass-through of its Accumulate node; on the thread
/// that runs the pass. The engine lets go of its handle on `grad` right after the call, so add_gradient() may
/// take it over.
class Sink {
 public:
  virtual ~Sink() = default;
  /// `grad` has the leaf's shape and dtype. What this throws ends the pass.
  virtual void accumulate(const Tensor& leaf, const Tensor& grad) = 0;
  /// Whether whoever it hands its sums on to runs the hooks of the leaf, with the whole of what comes here.
  virtual bool hooks_later(const Tensor& /*leaf*/) { return false; }
  /// What it keeps the sum of the leaf's gradients in; undefined: nothing yet, or accumulate() must see each
  /// gradient. A step that can, such as the product that makes the gradient of a weight, adds to it on the
  /// way, and accumulate() hears nothing.
  virtual Tensor sum_of(const Tensor& /*leaf*/) { return {}; }
  /// The step for which sum_of() was asked has run.
  virtual void sums_done() {}
  /// Nothing more comes for a leaf that has hooks; `came`: accumulate() had something.
  virtual void settled(const Accumulate& /*leaf*/, bool /*came*/) {}
  /// Gradients (undefined: none) that leave the local graph through `node`, whose end() is `exit`.
  virtual void leave(Node& node, Tensors grads);
  /// All has come for a step that waits (its end() is `later`): `grads`, undefined where nothing came. What
  /// it gives has to reach the pass as number `ticket`, by Region::resume().
  virtual void later(Node& node, Tensors grads, uint32_t ticket);
};

/// `invalid`: a local pass cannot do a step that waits.
[[noreturn]] void refuse_step(const char* part, const Node& step);

}  // namespace troupe::internal::autograd
