// Options structs to and from ValueMap, and their checks: how options travel to the owners of parameters.
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/value.h"

namespace troupe::optim {

/// An Options struct lists its members once, in `static void fields(auto& options, auto&& field)`:
/// field("lr", options.lr). These functions do the rest.
template <class Options>
ValueMap options_to_map(const Options& options) {
  ValueMap map;
  Options::fields(options, [&](const char* name, const auto& value) { map[name] = value; });
  return map;
}

/// `invalid` on an unknown name (with the nearest known one) or a value of the wrong type. Integers pass as
/// doubles.
template <class Options>
Options options_from_map(const char* optimizer, const ValueMap& map) {
  const std::string start = "[" + std::string(optimizer) + "] option ";
  Options options;
  std::vector<std::string> known;
  Options::fields(options, [&](const char* name, auto& value) {
    known.push_back(name);
    const auto it = map.find(name);
    if (it == map.end()) return;
    using T = std::remove_reference_t<decltype(value)>;
    if (const T* same = it->second.get_if<T>())
      value = *same;
    else if (const int64_t* whole = it->second.get_if<int64_t>(); whole && std::is_same_v<T, double>)
      value = static_cast<T>(*whole);
    else
      throw_invalid(start + name + " must be a " + (std::is_same_v<T, bool> ? "bool" : "double") + ", got " +
                    it->second.describe());
  });
  for (const auto& [name, value] : map) {
    bool found = false;
    for (const std::string& k : known) found |= k == name;
    if (found) continue;
    const std::string near = nearest(name, known);
    throw_invalid(start + "\"" + name + "\" is unknown" +
                  (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
  }
  return options;
}

/// `invalid` unless low <= value, value < high (high may be infinite) and value is finite.
inline void check_option(const char* optimizer, const char* name, double value, double low,
                         double high = HUGE_VAL) {
  if (std::isfinite(value) && value >= low && value < high) return;
  throw_invalid("[" + std::string(optimizer) + "] option " + name + " must be " +
                (std::isfinite(high) ? "in [" + std::to_string(low) + ", " + std::to_string(high) + ")"
                                     : "a finite number of at least " + std::to_string(low)) +
                ", got " + std::to_string(value));
}

}  // namespace troupe::optim
