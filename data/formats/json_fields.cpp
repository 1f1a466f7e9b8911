#include "data/formats/json_fields.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "data/formats/file.h"
#include "data/formats/json.h"

namespace troupe::datasets {

JsonFields::JsonFields(Value object, std::string what) : object_(std::move(object)), what_(std::move(what)) {
  if (!object_.get_if<ValueMap>()) refuse("it", object_, "an object");
}

void JsonFields::refuse(const std::string& why) const { throw_invalid(what_ + ": " + why); }

void JsonFields::refuse(const std::string& name, const Value& got, const std::string& expected) const {
  std::string shown = json_text(got);
  if (shown.size() > 80) shown = shown.substr(0, 77) + "...";
  refuse(fmt::format("{} is {}, expected {}", name, shown, expected));
}

const Value* JsonFields::find(const std::string& name) const& {
  const auto& fields = all();
  const auto at = fields.find(name);
  return at == fields.end() || at->second.is_null() ? nullptr : &at->second;
}

const Value* JsonFields::needed(const std::string& name, bool optional) const {
  const Value* v = find(name);
  if (!v && !optional) refuse(name + " is missing");
  return v;
}

int64_t JsonFields::whole(const std::string& name, std::optional<int64_t> otherwise) const {
  const Value* v = needed(name, otherwise.has_value());
  if (!v) return *otherwise;
  const auto* n = v->get_if<int64_t>();
  if (!n) refuse(name, *v, "a whole number");
  return *n;
}

double JsonFields::number(const std::string& name, std::optional<double> otherwise) const {
  const Value* v = needed(name, otherwise.has_value());
  if (!v) return *otherwise;
  if (const auto* n = v->get_if<int64_t>()) return static_cast<double>(*n);
  const auto* n = v->get_if<double>();
  if (!n) refuse(name, *v, "a number");
  return *n;
}

bool JsonFields::truth(const std::string& name, std::optional<bool> otherwise) const {
  const Value* v = needed(name, otherwise.has_value());
  if (!v) return *otherwise;
  const auto* b = v->get_if<bool>();
  if (!b) refuse(name, *v, "true or false");
  return *b;
}

std::string JsonFields::text(const std::string& name, std::optional<std::string> otherwise) const {
  const Value* v = needed(name, otherwise.has_value());
  if (!v) return *otherwise;
  const auto* s = v->get_if<std::string>();
  if (!s) refuse(name, *v, "a text");
  return *s;
}

std::vector<std::string> JsonFields::texts(const std::string& name) const {
  const Value* v = needed(name, false);
  const auto* list = v->get_if<ValueList>();
  if (!list) refuse(name, *v, "a list of texts");
  std::vector<std::string> out;
  for (const Value& each : *list) {
    const auto* s = each.get_if<std::string>();
    if (!s) refuse(name, *v, "a list of texts");
    out.push_back(*s);
  }
  return out;
}

JsonFields JsonFields::inner(const std::string& name) const {
  return {*needed(name, false), what_ + ": " + name};
}

JsonFields read_json_fields(const std::string& path, const char* tag) {
  const auto file = MappedFile::open(path, tag, "a JSON file");
  const std::string what = fmt::format("[{}] {}", tag, path);
  return {read_json(file->text(), what + ": "), what};
}

}  // namespace troupe::datasets
