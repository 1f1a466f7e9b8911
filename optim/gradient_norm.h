// Sizes of gradients: sums of squares and largest elements, in double and in a fixed order.
#pragma once
#include "core/tensor/tensor.h"

namespace troupe::optim {

/// Sum of the squares of all elements of a floating tensor; 0 without elements.
double sum_of_squares(const Tensor& t);
/// Largest absolute value; NaN if there is a NaN, 0 without elements.
double largest(const Tensor& t);
/// False if an element is infinite or NaN.
bool all_finite(const Tensor& t);

}  // namespace troupe::optim
