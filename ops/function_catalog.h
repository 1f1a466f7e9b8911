// Operators and functions as entries: what help, completion and calls by name know of them.
#pragma once
#include <span>

#include "core/entry/maker.h"
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// An operator: its inputs as tensor parameters (those that may be left out are none then; any number of them
/// is one list), then its attributes, or both in the order that the operator says. A parameter without a name
/// is known by its position.
Entry entry_of(const Op& op);

/// The names of an operator's inputs.
std::vector<std::string> input_names(const Op& op);

/// The functions of ops/*.h that are no operators, or do more than the operator of their name, which is
/// `internal` then: in-place ones, views, creation. No function has the name of an operator that is not
/// `internal`. Names are PyTorch's, and parameters have PyTorch's names in the order that they have here.
/// Those in place give the tensor back.
std::span<const Maker<Value>> functions();

}  // namespace troupe::ops
