// What ranks of a mesh give, as one tensor of the driver.
#pragma once
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe::parallel {

/// What all have computed alike: the tensor of the first, whose gradient goes to all. `invalid`, naming two
/// that differ, unless all have the same bits.
Tensor same_on_all(const Tensors& values);

/// The sum of weights[i] * values[i], divided by the sum of the weights, such as losses by their numbers of
/// rows; without weights they count alike. One with weight 0 does not count, whatever it is, and a pass comes
/// by it all the same, so that its rank meets the others there. `invalid` unless no weight is below 0 and one
/// is above.
Tensor weighted_mean(const Tensors& values, const std::vector<double>& weights = {});

}  // namespace troupe::parallel
