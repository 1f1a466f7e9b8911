#include "troupe/ways/ways.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "collective/schedule/choice.h"
#include "core/base/text_table.h"

namespace troupe {
namespace internal {
namespace {

using Row = std::vector<std::string>;

std::string from_text(int64_t bytes) {
  return bytes > 1 ? collective::size_text(static_cast<size_t>(bytes)) : std::string("any");
}

// "w0, w1, w2 to each other", or "w0 to w1, w2".
std::vector<std::string> pairs_text(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::vector<std::string> names;
  std::vector<std::pair<std::string, std::string>> by_sender;
  const auto add = [&](const std::string& n) {
    if (std::ranges::find(names, n) == names.end()) names.push_back(n);
  };
  for (const auto& [from, to] : pairs) {
    add(from), add(to);
    const auto at = std::ranges::find(by_sender, from, [](const auto& s) { return s.first; });
    if (at == by_sender.end())
      by_sender.emplace_back(from, to);
    else
      at->second += ", " + to;
  }
  if (pairs.size() == names.size() * (names.size() - 1))
    return {fmt::format("{} to each other", fmt::join(names, ", "))};
  std::vector<std::string> texts;
  for (const auto& [from, to] : by_sender) texts.push_back(from + " to " + to);
  return texts;
}

}  // namespace
}  // namespace internal

std::string Ways::print() const {
  using internal::from_text, internal::pairs_text, internal::text_table, internal::Row;
  if (tensors.empty()) return "there is one worker: its tensors stay where they are\n";
  std::vector<std::pair<TensorWay, std::vector<std::pair<std::string, std::string>>>> kinds;
  for (const TensorWay& w : tensors) {
    TensorWay kind = w;
    kind.from = kind.to = "";
    auto at = std::ranges::find(kinds, kind, [](const auto& k) { return k.first; });
    if (at == kinds.end()) at = kinds.insert(at, {kind, {}});
    at->second.emplace_back(w.from, w.to);
  }
  std::vector<Row> rows{{"workers", "device", "arrives on", "way", "from", "what is smaller", "why"}};
  for (const auto& [w, pairs] : kinds)
    for (const std::string& who : pairs_text(pairs))
      rows.push_back({who, w.from_device, w.to_device, w.way, from_text(w.at_least), w.below, w.why});
  std::string text = "Tensors in messages:\n" + text_table(rows);
  if (groups.empty()) return text;
  rows = {{"operation", "devices", "way", "from", "why"}};
  for (const GroupWay& w : groups)
    rows.push_back(
        {w.operation.empty() ? "all" : w.operation, w.devices, w.way, from_text(w.at_least), w.why});
  return text + "\nOperations of a group of all workers:\n" + text_table(rows);
}

}  // namespace troupe
