// Updates that are made of operators, so that they run on every device without a kernel.
#pragma once
#include <span>

#include "core/tensor/tensor.h"

namespace troupe::ops {
class Attrs;
}

namespace troupe::internal {

/// A step of one parameter, in the dtype that updates compute with, and without history.
struct ParameterStep {
  Tensor param, grad;
  Tensors slots;
  int64_t number;  ///< counts from 1
};

/// Gives the new values of the parameter and of the slots, or nothing where there is nothing to change.
using ComposedUpdate = Tensors(const ops::Attrs& options, const ParameterStep& step);

/// Inputs and results are those of kernels (ops/cpu/optimizers.cpp).
void update_each(ComposedUpdate* update, std::span<const Tensor> in, const Tensors& out,
                 const ops::Attrs& options);

/// Gives sqrt(mean(x²)) of all elements; 0 of none.
double root_mean_square(const Tensor& x);

}  // namespace troupe::internal
