// Options structs: their names, ranges and way out of a ValueMap, from one list of fields.
#pragma once
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/value/value.h"

namespace troupe::optim {

// An Options struct has a kName, a line of text (kText), and lists its members once, with the range of each
// number:
//
//   static void fields(auto& o, auto&& field) { field("beta1", o.beta1, 0, 1), field("amsgrad", o.amsgrad);
//   }
//
// A number is at least `low` and below `high`; without a range, any finite one. `void check() const`,
// if there is one, checks several members together. slots() names the state tensors of each parameter; with
// kLooksAtWholeParameters pieces of parameters are refused.
// The functions below do the rest.

/// `invalid`: [optimizer] has no option of that name; it lists those that it has, the nearest first.
[[noreturn]] void refuse_unknown_option(const char* optimizer, const std::string& name,
                                        std::vector<std::string> known);
/// `invalid` unless low <= high.
void check_order(const char* optimizer, const char* low_name, double low, const char* high_name, double high);

/// `invalid` unless low <= value < high (high may be infinite) and value is finite.
void check_option(const char* optimizer, const char* name, double value, double low, double high);

template <class Options>
void check_options(const Options& options) {
  struct {
    void operator()(const char*, bool) const {}
    void operator()(const char* name, double value, double low = -HUGE_VAL, double high = HUGE_VAL) const {
      check_option(Options::kName, name, value, low, high);
    }
  } field;
  Options::fields(options, field);
  if constexpr (requires { options.check(); }) options.check();
}

/// `options` with what `map` names; integers pass as doubles. `invalid` on an unknown name (with the known
/// ones), a value of the wrong type or out of range.
template <class Options>
Options options_from_map(const ValueMap& map, Options options = {}) {
  const std::string start = "[" + std::string(Options::kName) + "] option ";
  std::vector<std::string> known;
  Options::fields(options, [&](const char* name, auto& value, auto...) {
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
    refuse_unknown_option(Options::kName, name, std::move(known));
  }
  check_options(options);
  return options;
}

}  // namespace troupe::optim
