#include "core/base/repeats.h"

namespace troupe::internal::log {
namespace {

constexpr size_t kMostLines = 1000;  // that are remembered
constexpr Duration kAgain = std::chrono::minutes(1);

}  // namespace

std::string Repeats::line(const std::string& text, TimePoint now) {
  if (lines_.size() >= kMostLines && !lines_.contains(text)) lines_.clear();
  Entry& entry = lines_[text];
  ++entry.times;
  const bool due = entry.times == entry.next;
  if (due) entry.next *= 10;
  if (!due && now - entry.at < kAgain) return {};
  entry.at = now;
  entry.written = entry.times;
  return entry.times == 1 ? text : counted(text, entry);
}

std::string Repeats::counted(const std::string& text, const Entry& entry) {
  return text + "\n  [" + std::to_string(entry.times) + " times so far]";
}

std::vector<std::string> Repeats::rest() {
  std::vector<std::string> out;
  for (const auto& [text, entry] : lines_)
    if (entry.times > entry.written) out.push_back(counted(text, entry));
  lines_.clear();
  return out;
}

}  // namespace troupe::internal::log
