// JSON as values.
#pragma once
#include <string>
#include <string_view>

#include "core/value/value.h"

namespace troupe::datasets {

/// Objects as maps, lists, text, numbers and what is true or false as they are, null as nothing. `invalid`,
/// the text starting with `what`, for what is no JSON, with the line and the column, for a key that is there
/// twice, for a number that no float64 holds, and for more than a few levels.
Value read_json(std::string_view text, const std::string& what);
/// Such a value as JSON in a line, for errors: a number that is not whole by its kind is 3.0.
std::string json_text(const Value& value);
/// JSON for files has many lines.
std::string json_lines(const Value& value);

}  // namespace troupe::datasets
