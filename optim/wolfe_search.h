// How long a step along a line has to be: Wolfe's strong conditions, as in torch/optim/lbfgs.py.
#pragma once
#include <functional>

#include "core/tensor/tensor.h"

namespace troupe::internal {

/// What was found t along the line.
struct Trial {
  double t, loss;
  Tensor grad;
  double slope;
};

/// Looks at 25 trials at most, of which the first is t, and gives the best one. `start` is at 0, where the
/// slope is negative. Two trials that are nearer than `nearest` / `size` are one.
Trial wolfe_search(const std::function<Trial(double)>& look, const Trial& start, double t, double size,
                   double nearest);

}  // namespace troupe::internal
