// What can be called by name: modules, functions, optimizers, methods of actors, with the names, types and
// defaults of what they take.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/value/value.h"

namespace troupe {

/// One parameter of an Entry.
struct Parameter {
  std::string name;                    ///< empty: known by its position alone
  std::string type = {};               ///< as Codec names it: "tensor", "int64", "list of double"
  std::optional<Value> standard = {};  ///< what it is where nothing is given; none: it has to be given
  std::string text = {};

  // Not inline: tables of hundreds of these are made, moved and destroyed.
  Parameter(const char* name);
  Parameter(std::string name, std::string type = {}, std::optional<Value> standard = {},
            std::string text = {});
  Parameter(const Parameter&);
  Parameter(Parameter&&) noexcept;
  Parameter& operator=(const Parameter&);
  Parameter& operator=(Parameter&&) noexcept;
  ~Parameter();
};

/// Describes something that can be called by name.
struct Entry {
  std::string name;
  std::string text;  ///< one line: what it is
  std::vector<Parameter> parameters;
  std::string result =
      {};  ///< the type of what it gives, as Codec names it; empty where there is no need to say
  /// "dropout(p: double = 0.5, inplace: bool = false) -> tensor".
  std::string signature() const;
};

/// The entry of that name. `invalid` naming the nearest one, or all of them: `[nn] unknown module "linaer";
/// did you mean "linear"?`. `what` is the words before the name: "[nn] unknown module".
const Entry& find_entry(std::span<const Entry> entries, std::string_view name, std::string_view what);

/// The arguments of a call in the order of the parameters, none left out: positional ones first, then those
/// by name, then defaults. A whole double becomes an integer, and an empty list an empty map, where the
/// parameter's type wants one. `invalid` with the signature where an argument is missing, surplus, unknown or
/// given twice.
ValueList complete(const Entry& entry, ValueList positional, ValueMap named = {});

/// A value as a parameter of that type takes it: see complete().
Value fitted(Value value, std::string_view type);

/// A value as text, as signatures and error texts show it: 0.5, true, "relu", [1, 2], {lr = 0.1}.
std::string text_of(const Value& value);

}  // namespace troupe
