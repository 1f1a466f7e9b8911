// A profile that is read for a model that is here.
#pragma once
#include <string>

#include "core/tensor/tensor.h"
#include "core/value/value.h"
#include "parallel/measure/model_profile.h"

namespace troupe::parallel {

/// Reads it as read_profile() does. `invalid`, saying which layer differs, for another model: other numbers
/// of layers, of parameters, or of results for a row. `model`, `sample`: as measure() takes them.
ModelProfile read_profile_of(const Value& model, const Tensor& sample, const std::string& path);
/// `invalid`, with that name of the profile, as read_profile_of() says.
void check_is_of(const ModelProfile& profile, const Value& model, const Tensor& sample,
                 const std::string& name);

}  // namespace troupe::parallel
