#include "core/base/chrome_trace.h"

#include <fmt/format.h>

#include <cmath>

namespace troupe {
namespace {

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  }
  return out + '"';
}

// JSON knows no infinity and no NaN.
std::string json(const ChromeTrace::Field& field) {
  if (const auto* text = std::get_if<std::string>(&field)) return json_string(*text);
  if (const auto* whole = std::get_if<int64_t>(&field)) return std::to_string(*whole);
  const double value = std::get<double>(field);
  return std::isfinite(value) ? fmt::format("{:.3f}", value) : "null";
}

std::string json(const ChromeTrace::Fields& fields) {
  std::string out;
  for (const auto& [name, value] : fields)
    out += (out.empty() ? "" : ", ") + json_string(name) + ": " + json(value);
  return out;
}

}  // namespace

void ChromeTrace::add(std::string& to, const char* phase, const std::string& name, Place at,
                      const Fields& more, const Fields& about) {
  to += fmt::format(",\n{{\"ph\": \"{}\", \"name\": {}, \"pid\": {}, \"tid\": {}", phase, json_string(name),
                    at.process, at.row);
  if (!more.empty()) to += ", " + json(more);
  if (!about.empty()) to += ", \"args\": {" + json(about) + "}";
  to += "}";
}

// Perfetto takes numbers alone.
size_t ChromeTrace::number_of(const std::string& id) {
  const auto [at, fresh] = numbers_.try_emplace(id, numbers_.size() + 1);
  if (fresh) arrows_.emplace_back();
  return at->second;
}

void ChromeTrace::name_process(int64_t process, const std::string& name) {
  add(events_, "M", "process_name", {process, 0}, {}, {{"name", name}});
}

void ChromeTrace::name_row(Place at, const std::string& name) {
  add(events_, "M", "thread_name", at, {}, {{"name", name}});
}

void ChromeTrace::box(const std::string& name, const std::string& category, Place at, double begin,
                      double duration, const Fields& about) {
  add(events_, "X", name, at, {{"cat", category}, {"ts", begin}, {"dur", duration}}, about);
}

void ChromeTrace::arrow_begin(const std::string& id, const std::string& name, Place at, double time) {
  const size_t number = number_of(id);
  ++arrows_[number - 1].begins;
  add(arrows_[number - 1].events, "s", name, at,
      {{"cat", "message"}, {"id", static_cast<int64_t>(number)}, {"ts", time}}, {});
}

void ChromeTrace::arrow_end(const std::string& id, const std::string& name, Place at, double time,
                            const Fields& about) {
  const size_t number = number_of(id);
  ++arrows_[number - 1].ends;
  add(arrows_[number - 1].events, "f", name, at,
      {{"cat", "message"}, {"id", static_cast<int64_t>(number)}, {"ts", time}, {"bp", "e"}}, about);
}

std::string ChromeTrace::str(const Fields& about) const {
  std::string all = events_;
  for (const Arrow& a : arrows_)
    if (a.begins && a.ends) all += a.events;
  if (!all.empty()) all.erase(0, 1);  // the first comma
  return "{\"displayTimeUnit\": \"ms\", " + (about.empty() ? "" : "\"otherData\": {" + json(about) + "}, ") +
         "\"traceEvents\": [" + all + "\n]}\n";
}

}  // namespace troupe
