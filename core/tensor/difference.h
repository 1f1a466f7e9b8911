// Compares tensors up to a tolerance, and says where they differ.
#pragma once
#include <string>

#include "core/tensor/tensor.h"

namespace troupe {

/// Empty if shapes agree and |got - wanted| <= absolute + relative |wanted| for every element (NaN equals
/// NaN); else what differs. Two undefined tensors do not.
std::string difference(const Tensor& got, const Tensor& wanted, double relative, double absolute);

}  // namespace troupe
