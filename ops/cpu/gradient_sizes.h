// Sizes of tensors, in double and in a fixed order.
#pragma once
#include "core/tensor/tensor.h"

namespace troupe::ops::on_cpu {

/// Sum of the squares of all elements of a floating tensor; 0 without elements.
double sum_of_squares(const Tensor& t);

}  // namespace troupe::ops::on_cpu
