// Sizes of gradients: sums of squares and largest elements, in double and in a fixed order.
#pragma once
#include "core/tensor/tensor.h"

namespace troupe::optim {

enum class Size { squares, largest, finite };
/// Of each tensor, the undefined ones as without elements; finite: 1 or 0. One call and one copy to the host
/// for all that are on one device.
std::vector<double> sizes_of(const Tensors& all, Size what);

/// Sum of the squares of all elements of a floating tensor; 0 without elements.
double sum_of_squares(const Tensor& t);
/// Largest absolute value; NaN if there is a NaN, 0 without elements.
double largest(const Tensor& t);
/// False if an element is infinite or NaN.
bool all_finite(const Tensor& t);

}  // namespace troupe::optim
