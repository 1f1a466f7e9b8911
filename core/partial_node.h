// A recorded step that can give the gradients of some of its inputs alone.
#pragma once
#include <span>

#include "core/node.h"

namespace troupe {

/// What a pass asks for that runs only what leads to given inputs, or a backward pass in two parts: the
/// gradient of a layer's input now, those of its parameters later.
class PartialNode : public Node {
 public:
  /// As apply(), with the work that the gradients of inputs with `wanted[i]` take; the others are of no
  /// meaning. May be called more than once, until release_saved().
  virtual Tensors apply_some(Tensors&& grads, std::span<const uint8_t> wanted) = 0;
};

}  // namespace troupe
