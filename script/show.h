// Values as a person reads them: shortened, with what is most worth knowing of tensors.
#pragma once
#include <string>
#include <string_view>

#include "core/value/value.h"

namespace troupe::script {

/// "float32 [64, 10], -3.1 to 2.8, mean 0.02, 3 NaN" and the elements, at most a few rows of a few:
///
///   tensor float32 [2, 3], 0 to 5, mean 2.5
///   [[0, 1, 2],
///    [3, 4, 5]]
std::string shown(const Tensor& tensor);

/// The text with control bytes and bytes that are no UTF-8 as \x1b, so that it cannot move a terminal's
/// cursor; newlines and tabs stay. Cut after `most` bytes, saying how many are left.
std::string harmless(std::string_view text, size_t most = 4096);

}  // namespace troupe::script
