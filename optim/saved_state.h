// Reading saved states: one entry at a time, with its checks.
#pragma once
#include <map>
#include <string>

#include "core/tensor/tensor.h"

namespace troupe::optim {

/// The entry `name`; `invalid`, the text starting with [who], if it is missing or has another shape or dtype.
const Tensor& saved(const char* who, const std::map<std::string, Tensor>& state, const char* name,
                    const Shape& shape, DType dtype);
/// A float64, 0-d.
double saved_number(const char* who, const std::map<std::string, Tensor>& state, const char* name);
/// An int64 of at least 0, 0-d.
int64_t saved_count(const char* who, const std::map<std::string, Tensor>& state, const char* name);

}  // namespace troupe::optim
