// Gradients that cannot be differentiated again.
#pragma once
#include <string>

#include "core/graph/node.h"

namespace troupe::autograd {

/// Gives `grads` a history that leads where `leads` do and refuses to be followed: a pass that would go there
/// is `invalid` before it runs, the text starting with [function].
void end_at(const std::string& function, Edges leads, Tensors& grads);

}  // namespace troupe::autograd
