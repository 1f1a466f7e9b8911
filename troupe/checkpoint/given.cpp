#include "troupe/checkpoint/given.h"

#include <fmt/format.h>

#include <set>

namespace troupe::internal {
namespace {

constexpr int64_t kMostNumbers = 16;  // of one list, as the rates of groups
constexpr size_t kMostNamed = 5;

template <class T>
std::string text_of(const Tensor& t) {
  std::string out;
  for (const T x : t.to_vector<T>()) out += fmt::format("{}{}", out.empty() ? "" : ", ", x);
  return out;
}

}  // namespace

std::map<std::string, std::string> given_in(const StateDict& rest) {
  std::map<std::string, std::string> out;
  for (const auto& [name, t] : rest) {
    if (t.dim() > 1 || t.numel() > kMostNumbers) continue;
    if (t.dtype() == float64) out.emplace(name, text_of<double>(t));
    if (t.dim() == 0 && t.dtype() == int64) out.emplace(name, text_of<int64_t>(t));
    if (t.dim() == 0 && t.dtype() == boolean) out.emplace(name, t.item() != 0 ? "true" : "false");
  }
  return out;
}

std::string given_otherwise(const Given& first, const Given& now) {
  std::set<std::string> named;  // each once: an actor has what the driver's optimizer tells it
  std::string out;
  const auto look = [&](const std::string& owner, const std::map<std::string, std::string>& numbers) {
    const auto before = first.find(owner);
    if (before == first.end()) return;
    for (const auto& [name, number] : numbers) {
      const auto at = before->second.find(name);
      if (at == before->second.end() || at->second == number || !named.insert(name).second) continue;
      if (named.size() <= kMostNamed)
        out += fmt::format("{}{} of {} is given as {}, and was as {} when the job began",
                           out.empty() ? "" : "; ", name, owner, number, at->second);
    }
  };
  if (const auto driver = now.find("driver"); driver != now.end()) look("driver", driver->second);
  for (const auto& [owner, numbers] : now)
    if (owner != "driver") look(owner, numbers);
  if (named.size() > kMostNamed) out += fmt::format("; and {} more", named.size() - kMostNamed);
  return out;
}

}  // namespace troupe::internal
