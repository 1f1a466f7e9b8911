// How gradients are added up: which buffer may be written to, and which must be copied first.
#pragma once
#include "core/tensor/tensor.h"

namespace troupe::internal::autograd {

/// Adds `grad` to the gradient kept in `kept`: a leaf's `.grad`, or a gradient of a distributed context.
///
/// The first gradient is taken over if `grad` is the only handle on it (the caller must then let go of it),
/// and copied otherwise, so `kept` never shares elements that somebody else may write to. Later ones are
/// added in place, or as a recorded operation while grad mode is on and a history is to be kept. `invalid` if
/// shapes or dtypes differ.
void add_gradient(Tensor& kept, const Tensor& grad);

/// Whether the gradients of `leaf`, on the CPU and large enough, are to be added up by the steps that make
/// them.
bool worth_adding_to(const Tensor& leaf);

/// Whether a step may add to `kept`, the sum of gradients of `leaf`, while it computes: it is contiguous and
/// records nothing.
bool can_add_to(const Tensor& kept, const Tensor& leaf);

/// The sum of two gradients on their way through the graph; writes into `a` or `b` where that is exclusive.
Tensor sum_gradients(Tensor a, Tensor b);

}  // namespace troupe::internal::autograd
