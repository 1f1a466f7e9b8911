// A recorded step that can give the gradients of some of its inputs alone, and add to sums of gradients.
#pragma once
#include <span>

#include "core/graph/node.h"

namespace troupe {

/// What a PartialNode is asked for, by input.
struct GradientRequest {
  std::span<const uint8_t> wanted = {};  ///< not 0: its gradient; empty: all
  /// Defined: contiguous, of the input's shape and dtype, and the gradient may be added to what it holds
  /// instead. Empty: none.
  std::span<const Tensor> sums = {};
  /// Defined: what has come so far for the result of another step that the input is. A step that adds its own
  /// to it, as it rounds it, lets go of it here and gives the sum, with the bits of an addition behind it.
  /// Empty: none.
  std::span<Tensor> pending = {};
};

/// What a pass asks for that runs only what leads to given inputs, or a backward pass in two parts: the
/// gradient of a layer's input now, those of its parameters later; or that adds gradients up.
class PartialNode : public Node {
 public:
  /// As apply(), with the work that the gradients asked for take; the others are of no meaning. A gradient
  /// that is `sums[i]` itself was added there. May be called more than once, until release_saved().
  virtual Tensors apply_some(Tensors&& grads, const GradientRequest& request) = 0;
};

}  // namespace troupe
