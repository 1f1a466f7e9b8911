#include "data/checkpoint/checkpoint_index.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.h"
#include "core/base/visible.h"
#include "data/formats/crc32.h"

namespace troupe::datasets {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostDepth = 8;  // of lists and objects in each other
constexpr std::string_view kEndKey = ",\n \"crc32\": ";

std::string end_for(uint32_t crc) { return fmt::format("{}{}\n}}\n", kEndKey, crc); }

// Reads members of a tree of JSON, each with what it must be.
class Reader {
 public:
  explicit Reader(std::string where) : where_(std::move(where)) {}

  [[noreturn]] void fail(const std::string& what) const { throw_invalid(where_ + what); }

  // nlohmann keeps the last of two equal keys without a word, and nests as deep as the text does.
  Json parse(std::string_view text) const {
    std::vector<std::set<std::string>> open;
    const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
      if (depth > static_cast<int>(kMostDepth))
        fail(fmt::format("nests deeper than {} lists and objects", kMostDepth));
      if (event == Json::parse_event_t::object_start) open.emplace_back();
      if (event == Json::parse_event_t::object_end) open.pop_back();
      if (event == Json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second)
        fail(fmt::format("has the name {} twice", in_quotes(parsed.get<std::string>(), 80)));
      return true;
    };
    try {
      return Json::parse(text, watch);
    } catch (const Json::parse_error& e) {
      fail(fmt::format("is no JSON at byte {}", e.byte > 0 ? e.byte - 1 : 0));
    } catch (const Json::out_of_range&) {
      fail("has a number that no float64 holds");
    }
  }

  const Json& member(const Json& of, const char* key, Json::value_t type, const char* expected) const {
    const auto at = of.find(key);
    if (at == of.end()) fail(fmt::format("has no \"{}\"", key));
    if (at->type() != type) fail(fmt::format("\"{}\" is {}, expected {}", key, shown(*at), expected));
    return *at;
  }
  const Json& object(const Json& of, const char* key) const {
    return member(of, key, Json::value_t::object, "an object");
  }
  const Json& list(const Json& of, const char* key) const {
    return member(of, key, Json::value_t::array, "a list");
  }
  std::string text(const Json& of, const char* key) const {
    return member(of, key, Json::value_t::string, "a text").get<std::string>();
  }
  bool flag(const Json& of, const char* key) const {
    return member(of, key, Json::value_t::boolean, "true or false").get<bool>();
  }
  template <class T>
  T number(const Json& of, const char* key) const {
    return number_in<T>(member(of, key, Json::value_t::number_unsigned, "a whole number from 0"), key);
  }
  template <class T>
  T number_in(const Json& value, std::string_view name) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{std::numeric_limits<T>::max()})
      fail(fmt::format("{} is {}, expected a whole number from 0 to {}", in_quotes(name, 80), shown(value),
                       std::numeric_limits<T>::max()));
    return value.get<T>();
  }

 private:
  static std::string shown(const Json& value) {
    return value.is_structured() ? value.is_array() ? "a list" : "an object"
                                 : in_quotes(value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  const std::string where_;
};

// A name that stays in its folder, on any system, and hides nothing.
bool plain(const std::string& name) {
  return !name.empty() && name.size() <= 200 && name.front() != '.' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+@") ==
             std::string::npos;
}

void check_plain(const std::string& name, const Reader& reader) {
  if (!plain(name))
    reader.fail(
        fmt::format("names the file {}, expected a plain name (letters, digits and ._-+@) in its folder",
                    in_quotes(name, 80)));
}

CheckpointFile file_in(const Json& json, const Reader& reader) {
  if (!json.is_object()) reader.fail("\"files\" holds something else than objects");
  CheckpointFile file;
  file.name = reader.text(json, "name");
  check_plain(file.name, reader);
  file.bytes = reader.number<uint64_t>(json, "bytes");
  file.crc32 = reader.number<uint32_t>(json, "crc32");
  file.header_bytes = reader.number<uint64_t>(json, "header_bytes");
  file.header_crc32 = reader.number<uint32_t>(json, "header_crc32");
  if (file.header_bytes > file.bytes)
    reader.fail(
        fmt::format("{} has {} bytes, {} of them in its header", file.name, file.bytes, file.header_bytes));
  file.model = reader.flag(json, "model");
  for (const auto& [name, crc] : reader.object(json, "tensors").items())
    file.tensors.emplace(name, reader.number_in<uint32_t>(crc, name));
  return file;
}

std::map<std::string, std::map<std::string, std::string>> given_in(const Json& json, const Reader& reader) {
  std::map<std::string, std::map<std::string, std::string>> given;
  for (const auto& [owner, numbers] : json.items()) {
    if (!numbers.is_object())
      reader.fail(fmt::format("\"given\" has no object for {}", in_quotes(owner, 80)));
    for (const auto& [name, number] : numbers.items()) {
      if (!number.is_string()) reader.fail(fmt::format("\"given\" has no text for {}", in_quotes(name, 80)));
      given[owner].emplace(name, number.get<std::string>());
    }
  }
  return given;
}

}  // namespace

std::string checkpoint_index_text(const CheckpointIndex& index) {
  Json weights = Json::object(), files = Json::array();
  uint64_t total = 0;
  for (const CheckpointFile& f : index.files) {
    if (!plain(f.name))
      throw_invalid(
          fmt::format("[checkpoint] the file {} of a checkpoint is to have a plain name (letters, "
                      "digits and ._-+@)",
                      in_quotes(f.name, 80)));
    if (f.model) {
      total += f.bytes - f.header_bytes;
      for (const auto& [name, crc] : f.tensors) weights[name] = f.name;
    }
    files.push_back({{"name", f.name},
                     {"bytes", f.bytes},
                     {"crc32", f.crc32},
                     {"header_bytes", f.header_bytes},
                     {"header_crc32", f.header_crc32},
                     {"model", f.model},
                     {"tensors", f.tensors}});
  }
  const Json json{{"metadata", {{"total_size", total}}},
                  {"weight_map", std::move(weights)},
                  {"troupe",
                   {{"format", index.format},
                    {"step", index.step},
                    {"program", index.program},
                    {"instructions", index.instructions},
                    {"world", index.world},
                    {"layout", index.layout},
                    {"given", index.given},
                    {"files", std::move(files)}}}};
  std::string text;
  try {
    text = json.dump(1);
  } catch (const Json::type_error&) {
    throw_invalid("[checkpoint] a name in the checkpoint is not UTF-8");
  }
  text.resize(text.size() - 2);  // "\n}"
  return text + end_for(crc32_of(text.data(), text.size()));
}

std::optional<std::map<std::string, std::string>> parse_weight_map(std::string_view text,
                                                                   const std::string& where) {
  const Reader reader(where);
  const Json json = reader.parse(text);
  if (!json.is_object()) reader.fail("is no object");
  if (json.contains("troupe")) return std::nullopt;
  std::map<std::string, std::string> out;
  for (const auto& [name, file] : reader.object(json, "weight_map").items()) {
    if (!file.is_string()) reader.fail(fmt::format("\"weight_map\" has no file for {}", in_quotes(name, 80)));
    check_plain(file.get<std::string>(), reader);
    out.emplace(name, file.get<std::string>());
  }
  return out;
}

CheckpointIndex parse_checkpoint_index(std::string_view text, const std::string& where) {
  const Reader reader(where);
  const size_t end = text.rfind(kEndKey);
  if (end == std::string_view::npos)
    reader.fail(fmt::format(
        "has {} bytes and no \"crc32\" at its end: cut short, or no index that Troupe wrote", text.size()));
  const std::string expected = end_for(crc32_of(text.data(), end));
  if (text.substr(end) != expected)
    reader.fail(fmt::format(
        "is not as it was written: at byte {} it says {}, but the {} bytes before give {}", end + 2,
        in_quotes(text.substr(end + 2)), end, in_quotes(std::string_view(expected).substr(2))));
  const Json json = reader.parse(text);
  if (!json.is_object()) reader.fail("is no object");
  const Json& ours = reader.object(json, "troupe");
  CheckpointIndex index;
  index.format = reader.number<int64_t>(ours, "format");
  if (index.format < 1 || index.format > kCheckpointFormat)
    reader.fail(fmt::format("has format {}, expected at most {}: it is of another version of Troupe",
                            index.format, kCheckpointFormat));
  index.step = reader.number<int64_t>(ours, "step");
  index.program = reader.text(ours, "program");
  index.instructions = reader.text(ours, "instructions");
  index.world = reader.number<int64_t>(ours, "world");
  for (const auto& [path, worker] : reader.object(ours, "layout").items()) {
    if (!worker.is_string()) reader.fail(fmt::format("\"layout\" has no worker for {}", in_quotes(path, 80)));
    index.layout.emplace(path, worker.get<std::string>());
  }
  if (ours.contains("given")) index.given = given_in(reader.object(ours, "given"), reader);
  std::set<std::string> names;
  for (const Json& file : reader.list(ours, "files")) {
    index.files.push_back(file_in(file, reader));
    if (!names.insert(index.files.back().name).second)
      reader.fail(fmt::format("names the file {} twice", index.files.back().name));
  }
  return index;
}

}  // namespace troupe::datasets
