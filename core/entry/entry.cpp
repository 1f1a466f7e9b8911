#include "core/entry/entry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "core/base/error.h"

namespace troupe {
namespace {

std::string literal(std::string_view text) { return fmt::format("{:?}", text); }

}  // namespace

Parameter::Parameter(const char* name) : name(name) {}
Parameter::Parameter(std::string name, std::string type, std::optional<Value> standard, std::string text)
    : name(std::move(name)), type(std::move(type)), standard(std::move(standard)), text(std::move(text)) {}
Parameter::Parameter(const Parameter&) = default;
Parameter::Parameter(Parameter&&) noexcept = default;
Parameter& Parameter::operator=(const Parameter&) = default;
Parameter& Parameter::operator=(Parameter&&) noexcept = default;
Parameter::~Parameter() = default;

// What that type of a parameter makes of a value: numbers and empty tables of a shell do not say which kind
// they are.
Value fitted(Value value, std::string_view type) {
  if (type.starts_with("optional "))
    return value.is_null() ? value : fitted(std::move(value), type.substr(9));
  if (const auto* number = value.get_if<double>();
      number && type.starts_with("int") && std::trunc(*number) == *number && std::abs(*number) < 0x1p63)
    return static_cast<int64_t>(*number);
  if (auto* list = value.get_if<ValueList>()) {
    if (list->empty() && type.starts_with("map")) return ValueMap();
    if (type.starts_with("list of "))
      for (Value& element : *list) element = fitted(std::move(element), type.substr(8));
  }
  if (const auto* map = value.get_if<ValueMap>(); map && map->empty() && !type.starts_with("map"))
    return ValueList();
  return value;
}

std::string text_of(const Value& value) {
  return std::visit(
      []<class T>(const T& x) -> std::string {
        if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, int64_t> || std::is_same_v<T, double>)
          return fmt::format("{}", x);
        else if constexpr (std::is_same_v<T, std::string>)
          return literal(x);
        else if constexpr (std::is_same_v<T, ValueList>) {
          std::vector<std::string> texts;
          for (const Value& element : x) texts.push_back(text_of(element));
          return fmt::format("[{}]", fmt::join(texts, ", "));
        } else if constexpr (std::is_same_v<T, ValueMap>) {
          std::vector<std::string> texts;
          for (const auto& [name, element] : x) texts.push_back(name + " = " + text_of(element));
          return fmt::format("{{{}}}", fmt::join(texts, ", "));
        } else if constexpr (std::is_same_v<T, std::monostate>)
          return "none";
        else
          return Value(x).describe();
      },
      value.v);
}

std::string Entry::signature() const {
  std::vector<std::string> texts;
  for (const Parameter& p : parameters) {
    std::string text = p.name.empty() ? p.type : p.type.empty() ? p.name : p.name + ": " + p.type;
    if (p.standard) text += " = " + text_of(*p.standard);
    texts.push_back(std::move(text));
  }
  return fmt::format("{}({}){}", name, fmt::join(texts, ", "), result.empty() ? "" : " -> " + result);
}

const Entry& find_entry(std::span<const Entry> entries, std::string_view name, std::string_view what) {
  std::vector<std::string> known;
  for (const Entry& entry : entries) {
    if (entry.name == name) return entry;
    known.push_back(entry.name);
  }
  const std::string near = nearest(name, known);
  constexpr size_t kMost = 30;
  if (known.size() > kMost) {
    const size_t more = known.size() - kMost;
    known.resize(kMost);
    known.push_back("and " + std::to_string(more) + " more");
  }
  throw_invalid(fmt::format("{} {}; {}", what, literal(name),
                            near.empty() ? fmt::format("there are: {}", fmt::join(known, ", "))
                                         : "did you mean " + literal(near) + "?"));
}

ValueList complete(const Entry& entry, ValueList positional, ValueMap named) {
  const auto& parameters = entry.parameters;
  const auto wrong = [&](const std::string& text) { throw_invalid(text + ": " + entry.signature()); };
  if (positional.size() > parameters.size())
    wrong(fmt::format("{} takes {} argument{}, got {}", entry.name, parameters.size(),
                      parameters.size() == 1 ? "" : "s", positional.size()));
  ValueList out;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    auto by_name = p.name.empty() ? named.end() : named.find(p.name);
    if (i < positional.size()) {
      if (by_name != named.end())
        wrong(fmt::format("{} got {} twice, by position and by name", entry.name, p.name));
      out.push_back(fitted(std::move(positional[i]), p.type));
    } else if (by_name != named.end()) {
      out.push_back(fitted(std::move(by_name->second), p.type));
      named.erase(by_name);
    } else if (p.standard) {
      out.push_back(*p.standard);
    } else {
      wrong(fmt::format("{} needs {}", entry.name,
                        p.name.empty() ? fmt::format("argument {}, a {}", i + 1, p.type) : literal(p.name)));
    }
  }
  if (!named.empty()) {
    std::vector<std::string> known;
    for (const Parameter& p : parameters) known.push_back(p.name);
    const std::string near = nearest(named.begin()->first, known);
    wrong(fmt::format("{} has no parameter {}{}", entry.name, literal(named.begin()->first),
                      near.empty() ? "" : "; did you mean " + literal(near) + "?"));
  }
  return out;
}

}  // namespace troupe
