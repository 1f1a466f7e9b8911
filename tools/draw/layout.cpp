#include "tools/draw/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.h"
#include "data/file.h"
#include "parallel/pipeline/schedule/choose_policy.h"

namespace troupe::tools {
namespace {

using nlohmann::json;

constexpr size_t kMostBytes = 1 << 20;
constexpr int kMost = 1 << 20;  // of micro-batches, chunks, layers

class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : name_(name) { root_ = parse(text); }

  Layout layout() {
    const std::vector<std::string> known{"stages", "cuts",       "schedule",  "micro_batches",
                                         "chunks", "checkpoint", "most_live", "policies"};
    if (!root_.is_object()) fail(fmt::format("expected an object, got {}", root_.type_name()));
    for (const auto& [key, value] : root_.items())
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        const std::string near = nearest(key, known);
        fail(fmt::format("there is no key \"{}\"{}", key,
                         near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
      }
    Layout out;
    if (!root_.contains("stages")) fail("\"stages\" is missing: the worker of each stage");
    out.places = texts("stages");
    if (out.places.empty()) fail("\"stages\" is empty: expected the worker of each stage");
    for (const int cut : numbers("cuts", 1)) out.cuts.push_back(static_cast<size_t>(cut));
    if (!out.cuts.empty() && out.cuts.size() + 1 != out.places.size())
      fail(fmt::format("{} \"cuts\" make {} stages, and \"stages\" has {}", out.cuts.size(),
                       out.cuts.size() + 1, out.places.size()));
    auto& options = out.pipeline;
    if (root_.contains("micro_batches"))
      options.micro_batches = number("micro_batches", root_["micro_batches"], 1);
    if (root_.contains("chunks")) options.chunks = number("chunks", root_["chunks"], 1);
    if (root_.contains("schedule")) options.schedule = schedule();
    if (root_.contains("checkpoint")) options.checkpoint = checkpoint();
    options.most_live = numbers("most_live", 1);
    check_schedule(out);
    if (root_.contains("policies"))
      for (const auto& [key, value] : object("policies").items()) out.policies[key] = policy(key, value);
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw_invalid("[layout] " + name_ + ": " + what); }

  // nlohmann keeps the last of two equal keys, without a word.
  json parse(std::string_view text) const {
    std::vector<std::set<std::string>> open;
    const auto watch = [&](int, json::parse_event_t event, json& parsed) {
      if (event == json::parse_event_t::object_start) open.emplace_back();
      if (event == json::parse_event_t::object_end) open.pop_back();
      if (event == json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second)
        fail(fmt::format("the key \"{}\" is there twice", parsed.get<std::string>()));
      return true;
    };
    try {
      return json::parse(text, watch);
    } catch (const json::exception& e) {
      fail(e.what());
    }
  }

  int number(const char* key, const json& value, int least) const {
    const double number = value.is_number_integer() ? value.get<double>() : -1;
    if (!(number >= least && number <= kMost))
      fail(fmt::format("\"{}\" has {}: expected a whole number from {} to {}", key, value.dump(), least,
                       kMost));
    return static_cast<int>(number);
  }
  std::string text(const char* key, const json& value) const {
    if (!value.is_string()) fail(fmt::format("\"{}\" has {}: expected text", key, value.dump()));
    return value.get<std::string>();
  }
  const json& object(const char* key) const {
    const json& value = root_.at(key);
    if (!value.is_object()) fail(fmt::format("\"{}\" is {}: expected an object", key, value.dump()));
    return value;
  }
  const json& list(const char* key) const {
    static const json none = json::array();
    if (!root_.contains(key)) return none;
    const json& value = root_.at(key);
    if (!value.is_array()) fail(fmt::format("\"{}\" is {}: expected a list", key, value.dump()));
    return value;
  }
  std::vector<int> numbers(const char* key, int least) const {
    std::vector<int> out;
    for (const json& value : list(key)) out.push_back(number(key, value, least));
    return out;
  }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> out;
    for (const json& value : list(key)) out.push_back(text(key, value));
    return out;
  }

  std::string schedule() const {
    if (!root_.at("schedule").is_array()) return text("schedule", root_.at("schedule"));
    std::string table;
    for (const std::string& row : texts("schedule")) table += row + "\n";
    return table;
  }
  parallel::Checkpoint checkpoint() const {
    const std::string what = text("checkpoint", root_.at("checkpoint"));
    if (what == "never") return parallel::Checkpoint::never;
    if (what == "except_last") return parallel::Checkpoint::except_last;
    if (what == "always") return parallel::Checkpoint::always;
    fail(fmt::format("\"checkpoint\" is \"{}\": expected never, except_last or always", what));
  }
  parallel::ServerPolicy policy(const std::string& parameter, const json& value) const {
    if (!value.is_string())
      fail(fmt::format("\"policies\" of \"{}\" has {}: expected text", parameter, value.dump()));
    try {
      return parallel::ServerPolicy::parse(value.get<std::string>());
    } catch (const Error& e) {
      fail(fmt::format("\"policies\" of \"{}\": {}", parameter, e.message()));
    }
  }
  void check_schedule(const Layout& layout) const {
    const auto& options = layout.pipeline;
    const int stages = static_cast<int>(layout.places.size());
    if (stages % options.chunks != 0)
      fail(fmt::format("{} \"stages\" cannot be {} \"chunks\" for each worker", stages, options.chunks));
    if (options.schedule == "auto") return;
    try {
      (void)parallel::make_policy(options.schedule, stages / options.chunks, options.micro_batches,
                                  options.chunks);
    } catch (const Error& e) {
      fail(e.message());
    }
  }

  const std::string name_;
  json root_;
};

}  // namespace

Layout parse_layout(std::string_view text, const std::string& name) { return Reader(text, name).layout(); }

Layout read_layout(const std::string& path) {
  const auto file = datasets::MappedFile::open(path, "layout", "a layout (JSON)");
  if (file->size() > kMostBytes)
    throw_invalid(fmt::format("[layout] {}: {} bytes, expected at most {}", path, file->size(), kMostBytes));
  return parse_layout(file->text(), path);
}

}  // namespace troupe::tools
