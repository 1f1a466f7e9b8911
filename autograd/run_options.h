// How a pass over a recorded graph treats it.
#pragma once

namespace troupe::autograd {

struct RunOptions {
  bool retain_graph = false;  ///< keep what the nodes saved, for another pass over the same graph
  /// Record the pass, so that gradients have gradients; implies retain_graph. For grad(): what backward()
  /// leaves in `.grad` holds its leaf, and neither is freed until zero_grad().
  bool create_graph = false;
};

}  // namespace troupe::autograd
