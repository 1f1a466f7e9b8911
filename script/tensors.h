// Tensors from values: nested lists of numbers, and sizes that stand one by one.
#pragma once
#include <optional>
#include <string_view>

#include "core/value/value.h"

namespace troupe::script {

/// A tensor of nested lists of numbers or booleans, in that dtype, or as PyTorch has it: int64 of whole
/// numbers, bool of booleans, else float32. `lists`: what such a list is called in errors. `invalid` for
/// lists of several lengths, and for other elements.
Tensor tensor_of(const Value& nested, std::optional<DType> dtype, std::string_view lists);

/// PyTorch has zeros(2, 3) and x.view(3, -1) beside zeros([2, 3]): whole numbers one after the other
/// become the list that the operator takes.
void gather_sizes(std::string_view op, ValueList& positional);

}  // namespace troupe::script
