// Reads reference values (T = {"dtype", "shape", "data"}) from JSON into tensors.
#pragma once
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "core/tensor/creation.h"
#include "ops/dispatch/attrs.h"
#include "ops/view.h"
#include "tests/support/places.h"

namespace troupe::testing {

/// The file `name` of $TROUPE_ORACLE, or of tests/oracle.
inline nlohmann::json read_oracle(const std::string& name) {
  const char* folder = std::getenv("TROUPE_ORACLE");
  const std::string path = std::string(folder && *folder ? folder : kOracleFolder) + "/" + name;
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  return nlohmann::json::parse(file);
}

/// Undefined for null; "f64" becomes `floating`.
inline Tensor to_tensor(const nlohmann::json& j, DType floating = float64) {
  if (j.is_null()) return {};
  const std::string kind = j.at("dtype");
  const auto dims = j.at("shape").get<std::vector<int64_t>>();
  if (kind == "i64") return tensor(j.at("data").get<std::vector<int64_t>>()).reshape(dims);
  const Tensor t = tensor(j.at("data").get<std::vector<double>>(), float64).reshape(dims);
  if (kind == "f64") return ops::to(t, floating);
  if (kind == "bool") return ops::to(t, boolean);
  throw std::runtime_error("unknown dtype " + kind);
}

inline Tensors to_tensors(const nlohmann::json& list, DType floating = float64) {
  Tensors all;
  for (const auto& j : list) all.push_back(to_tensor(j, floating));
  return all;
}

/// Attribute names point into `j`, which must outlive the call that they are for.
inline ops::Attrs to_attrs(const nlohmann::json& j) {
  ops::Attrs attrs;
  for (auto it = j.begin(); it != j.end(); ++it) {
    const auto& v = it.value();
    ops::AttrValue value;
    if (v.is_boolean())
      value = v.get<bool>();
    else if (v.is_number_integer())
      value = v.get<int64_t>();
    else if (v.is_number())
      value = v.get<double>();
    else if (v.is_string())
      value = v.get<std::string>();
    else if (!v.empty() && v[0].is_number_float())
      value = v.get<std::vector<double>>();
    else
      value = v.get<std::vector<int64_t>>();
    attrs.add({it.key(), std::move(value)});
  }
  return attrs;
}

}  // namespace troupe::testing
