// Recording where grad mode is off.
#pragma once
#include "core/graph/node.h"

namespace troupe {

/// Operators record while one is alive on this thread, also inside a NoGradGuard and in a method whose caller
/// has one: for what computes and uses gradients of its own. (torch.enable_grad)
class EnableGradGuard : GradMode {
 public:
  EnableGradGuard() : GradMode(true) {}
};

}  // namespace troupe
