// Values as a person reads them: shortened, with what is most worth knowing of tensors.
#pragma once
#include <string>
#include <string_view>

#include "core/value/value.h"

namespace troupe::script {

/// As PyTorch prints it (Tensor::str). Above one that is shortened stands what its elements are like:
///
///   float32 [64, 100], -3.1 to 2.8, mean 0.02, 3 NaN
///   tensor([[ 0.1000,  ...
std::string shown(const Tensor& tensor);

/// The text with control bytes and bytes that are no UTF-8 as \x1b, so that it cannot move a terminal's
/// cursor; newlines and tabs stay. Cut after `most` bytes, saying how many are left.
std::string harmless(std::string_view text, size_t most = 4096);

}  // namespace troupe::script
