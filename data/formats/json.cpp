// A SAX handler: nlohmann's tree would keep the last of two equal keys without a word, and nest as deep as
// the text does.
#include "data/formats/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/visible.h"

namespace troupe::datasets {
namespace {

using Json = nlohmann::json;
constexpr size_t kMostLevels = 8, kLongest = 200;

class ValueReader {
 public:
  ValueReader(std::string_view text, const std::string& what) : text_(text), what_(what) {}
  Value result() && { return std::move(root_); }

  bool null() { return put({}); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) {
    return value <= INT64_MAX ? put(static_cast<int64_t>(value)) : put(static_cast<double>(value));
  }
  bool number_float(double value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // JSON has none
  bool start_object(size_t) { return open(ValueMap()); }
  bool start_array(size_t) { return open(ValueList()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    Level& level = open_.back();
    if (level.value.get_if<ValueMap>()->contains(name))
      fail("the key " + in_quotes(name, 80) + " is there twice");
    level.key = std::move(name);
    return true;
  }
  bool parse_error(size_t at, const std::string& token, const Json::exception& e) {
    const auto before = text_.substr(0, std::min(at, text_.size()));
    const size_t line_start = before.rfind('\n') + 1;  // 0 without one
    const auto place = fmt::format("line {}, column {}", 1 + std::ranges::count(before, '\n'),
                                   std::max<size_t>(before.size() - line_start, 1));
    if (dynamic_cast<const Json::out_of_range*>(&e))
      fail(fmt::format("the number {} at {} is larger than any float64", shortened(token), place));
    const std::string text = e.what();  // "[json.exception.parse_error.101] parse error at ...: ..."
    const size_t colon = text.find(": ");
    fail(fmt::format("it is no JSON at {}: {}", place,
                     shortened(std::string_view(text).substr(colon == std::string::npos ? 0 : colon + 2))));
  }

 private:
  struct Level {
    Value value;
    std::string key;  // of an object: whose value comes
  };

  [[noreturn]] void fail(const std::string& text) const { throw_invalid(what_ + text); }
  static std::string shortened(std::string_view text) {
    return visible(text.substr(0, kLongest)) + (text.size() > kLongest ? "..." : "");
  }
  bool open(Value value) {
    if (open_.size() >= kMostLevels) fail(fmt::format("it nests deeper than {} levels", kMostLevels));
    open_.push_back({std::move(value), ""});
    return true;
  }
  bool close() {
    Value done = std::move(open_.back().value);
    open_.pop_back();
    return put(std::move(done));
  }
  bool put(Value value) {
    if (open_.empty())
      root_ = std::move(value);
    else if (auto* list = open_.back().value.get_if<ValueList>())
      list->push_back(std::move(value));
    else
      (*open_.back().value.get_if<ValueMap>())[open_.back().key] = std::move(value);
    return true;
  }

  const std::string_view text_;
  const std::string& what_;
  Value root_;
  std::vector<Level> open_;
};

Json json_of(const Value& value) {
  if (const auto* x = value.get_if<bool>()) return *x;
  if (const auto* x = value.get_if<int64_t>()) return *x;
  if (const auto* x = value.get_if<double>()) return *x;
  if (const auto* x = value.get_if<std::string>()) return *x;
  if (value.is_null()) return nullptr;
  Json out;
  if (const auto* list = value.get_if<ValueList>()) {
    out = Json::array();
    for (const Value& element : *list) out.push_back(json_of(element));
  } else if (const auto* map = value.get_if<ValueMap>()) {
    out = Json::object();
    for (const auto& [key, element] : *map) out[key] = json_of(element);
  } else {
    out = value.describe();
  }
  return out;
}

}  // namespace

Value read_json(std::string_view text, const std::string& what) {
  ValueReader reader(text, what);
  Json::sax_parse(text, &reader);
  return std::move(reader).result();
}

std::string json_text(const Value& value) {
  return json_of(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_lines(const Value& value) {
  return json_of(value).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace troupe::datasets
