#include "parallel/server/compression/named_functions.h"

#include <algorithm>
#include <string_view>

#include "core/base/ascii.h"

namespace troupe::internal::parallel {
namespace {

bool is_function_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && letter(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

void check_function_name(const std::string& name, const std::string& what) {
  if (!is_function_name(name))
    throw_invalid(what + " \"" + name + "\" is no name: expected letters, digits and _, and a letter first");
}

std::pair<std::string, std::optional<double>> name_and_number(const std::string& text,
                                                              const std::string& what) {
  const size_t open = text.find('(');
  if (open == std::string::npos) return {text, {}};
  const std::string_view inside = std::string_view(text).substr(open + 1);
  const auto number =
      inside.ends_with(')') ? number_in(inside.substr(0, inside.size() - 1)) : std::optional<double>();
  if (!number)
    throw_invalid(what + " \"" + text + "\"; expected a name, or a name and a number, as \"" +
                  text.substr(0, open) + "(2)\"");
  return {text.substr(0, open), number};
}

}  // namespace troupe::internal::parallel
