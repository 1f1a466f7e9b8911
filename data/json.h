// JSON as values.
#pragma once
#include <string>
#include <string_view>

#include "core/value/value.h"

namespace troupe::datasets {

/// Objects as maps, lists, text, numbers and what is true or false as they are, null as nothing. `invalid`,
/// the text starting with `what`, for what is no JSON, for a key that is there twice, and for more than a few
/// levels.
Value read_json(std::string_view text, const std::string& what);

}  // namespace troupe::datasets
