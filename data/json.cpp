#include "data/json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/base/error.h"

namespace troupe::datasets {
namespace {

constexpr int kMostLevels = 8;

Value value_of(const nlohmann::json& from) {
  if (from.is_boolean()) return from.get<bool>();
  if (from.is_number_integer() && from <= INT64_MAX) return from.get<int64_t>();
  if (from.is_number()) return from.get<double>();
  if (from.is_string()) return from.get<std::string>();
  if (from.is_array()) {
    ValueList list;
    for (const auto& element : from) list.push_back(value_of(element));
    return list;
  }
  if (!from.is_object()) return {};
  ValueMap map;
  for (const auto& [key, value] : from.items()) map[key] = value_of(value);
  return map;
}

}  // namespace

Value read_json(std::string_view text, const std::string& what) {
  using Event = nlohmann::json::parse_event_t;
  // nlohmann keeps the last of two equal keys, without a word, and nests as deep as the text does.
  std::vector<std::set<std::string>> open;
  const auto watch = [&](int depth, Event event, nlohmann::json& parsed) {
    if (depth > kMostLevels)
      throw_invalid(what + "it nests deeper than " + std::to_string(kMostLevels) + " levels");
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(parsed.get<std::string>()).second)
      throw_invalid(what + "the key \"" + parsed.get<std::string>() + "\" is there twice");
    return true;
  };
  try {
    return value_of(nlohmann::json::parse(text, watch));
  } catch (const nlohmann::json::exception& e) {
    throw_invalid(what + e.what());
  }
}

}  // namespace troupe::datasets
