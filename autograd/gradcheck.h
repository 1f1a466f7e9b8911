// Compares recorded gradients, and gradients of gradients, with finite differences.
#pragma once
#include <functional>
#include <string>

#include "core/tensor/tensor.h"

namespace troupe::autograd {

/// Where analytic and numeric gradient differ most, in units of the tolerance.
struct GradReport {
  bool ok = true;
  size_t input = 0;   ///< number of the input
  int64_t index = 0;  ///< row-major, in that input
  double analytic = 0, numeric = 0;
  int64_t entries = 0;  ///< how many were compared
  /// "input 1 (float64 [2, 3]) at [1, 0]: analytic 2, numeric 3".
  std::string text;
};

/// Checks the gradients of `function` at `inputs`: those that require a gradient (all floating ones if none
/// does) are moved by +-eps, one element at a time, in float64; analytic and numeric agree if |a - n| <=
/// tolerance * (1 + |n|).
///
/// Results of any shape are weighted with fixed numbers and summed. `function` must be deterministic and must
/// not keep its arguments. `invalid` if there is nothing to check: no floating input, or a result without
/// history.
GradReport gradcheck(const std::function<Tensor(const Tensors&)>& function, const Tensors& inputs,
                     double eps = 1e-6, double tolerance = 1e-6);

/// The same for second derivatives: checks the gradients of the weighted sum of `function`'s gradients, which
/// are recorded with create_graph. For functions that are twice differentiable at `inputs`.
GradReport gradgradcheck(const std::function<Tensor(const Tensors&)>& function, const Tensors& inputs,
                         double eps = 1e-6, double tolerance = 1e-5);

}  // namespace troupe::autograd
