// Options of optimizers, as the oracle's files write them.
#pragma once
#include <nlohmann/json.hpp>

#include "core/value/value.h"

namespace troupe::testing {

/// Numbers and flags by name; "betas" becomes beta1 and beta2.
inline ValueMap to_options(const nlohmann::json& json) {
  ValueMap out;
  for (const auto& [name, value] : json.items()) {
    if (name == "betas") {
      out["beta1"] = value.at(0).get<double>();
      out["beta2"] = value.at(1).get<double>();
    } else if (value.is_boolean()) {
      out[name] = value.get<bool>();
    } else {
      out[name] = value.get<double>();
    }
  }
  return out;
}

}  // namespace troupe::testing
