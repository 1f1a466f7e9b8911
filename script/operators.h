// Operators and functions of tensors by name.
#pragma once
#include <string_view>

#include "core/entry/entry.h"

namespace troupe::script {

/// What ops::NAME gives for these arguments. An operator takes its tensors first (as many as it can take, or
/// one list of them where it takes any number), then its attributes in their order, or both by name. A number
/// in a tensor's place is one beside the other tensors, as in C++: `add(x, 2)`. A function
/// (ops/function_catalog.h) takes its parameters.
///
/// `invalid` with the nearest name for an unknown one, and with the signature for arguments that do not fit.
ValueList run_operator(std::string_view name, ValueList positional, ValueMap named = {});

/// All that run_operator() knows, by name, described.
std::span<const Entry> operators();

}  // namespace troupe::script
