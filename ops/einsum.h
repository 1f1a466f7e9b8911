// Sums of products by a formula of letters (Einstein's notation).
#pragma once
#include <string>

#include "core/tensor/tensor.h"

namespace troupe::ops {

/// einsum("bij,bjk->bik", {a, b}): each letter names a dimension; dimensions of one letter go together (a
/// size of 1 fits all), a letter twice in one tensor is its diagonal, and letters that do not stand after
/// "->" are summed over. "..." stands for any number of dimensions, which broadcast. Without "->" the result
/// has "...", then the letters that stand once, in alphabetical order. Several tensors are multiplied from
/// left to right, as batched matrix products. Recorded; the tensors have one dtype, not bool. `invalid`,
/// starting with [einsum], for a formula that does not fit them.
Tensor einsum(const std::string& equation, const Tensors& operands);

}  // namespace troupe::ops
