// Operators by name, called as a file of reference values says (tests/oracle/make_by_name.py).
#pragma once
#include "core/codec/codec.h"
#include "script/operators.h"
#include "tests/support/oracle.h"

namespace troupe::testing {

using Json = nlohmann::json;

// Missing ones are none.
inline Value argument(const Json& j, const Tensors& tensors) {
  if (j.is_null()) return {};
  if (j.is_object()) return tensors.at(j.at("t").get<size_t>());
  if (j.is_boolean()) return j.get<bool>();
  if (j.is_number_integer()) return j.get<int64_t>();
  if (j.is_number()) return j.get<double>();
  if (j.is_string()) return j.get<std::string>();
  ValueList list;
  for (const Json& one : j) list.push_back(argument(one, tensors));
  return list;
}

inline void flatten_into(Tensors& out, Value value) {
  if (auto* list = value.get_if<ValueList>()) {
    for (Value& v : *list) flatten_into(out, std::move(v));
  } else if (auto* t = value.get_if<Tensor>()) {
    out.push_back(*t);
  } else {
    out.push_back(tensor(Codec<Scalar>::from(value)));
  }
}

inline Tensors called_by_name(const Json& c, const Tensors& tensors) {
  ValueList positional;
  ValueMap named;
  for (const Json& a : c.at("args")) positional.push_back(argument(a, tensors));
  for (const auto& [name, a] : c.at("named").items()) named[name] = argument(a, tensors);
  Tensors out;
  flatten_into(out,
               script::run_operator(c.at("op").get<std::string>(), std::move(positional), std::move(named)));
  return out;
}

}  // namespace troupe::testing
