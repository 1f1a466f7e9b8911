// Convolutions on the matrix unit, of which each rule can be left out (conv_without.py).
#pragma once
#include <string>
#include <vector>

#include "core/tensor/tensor.h"
#include "ops/dispatch/op.h"

namespace troupe::testing {

extern const std::vector<std::string> kConvRules;
/// From now on; a number beyond the last rule: none.
void leave_out_of_conv(size_t rule);
/// The result of conv2d {x, weight, bias} in bfloat16, and the gradients of x and weight for that of the
/// result. All are contiguous.
Tensors conv_passes(const ops::Call& c, const Tensor& g);

}  // namespace troupe::testing
