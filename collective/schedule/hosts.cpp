#include "collective/schedule/hosts.h"

#include <algorithm>
#include <map>

namespace troupe::internal::collective {

HostOfRank counted(const HostOfRank& any) {
  if (std::ranges::adjacent_find(any, std::not_equal_to()) == any.end()) return {};
  std::map<uint32_t, uint32_t> numbers;
  HostOfRank of;
  for (const uint32_t host : any)
    of.push_back(numbers.emplace(host, static_cast<uint32_t>(numbers.size())).first->second);
  return of;
}

bool is_counted(const HostOfRank& of) {
  uint32_t met = 0;
  for (const uint32_t host : of)
    if (host > met)
      return false;
    else if (host == met)
      ++met;
  return true;
}

HostCounts host_counts(const HostOfRank& of, size_t ranks) {
  if (of.empty()) return {1, ranks, ranks};
  std::vector<size_t> on(*std::ranges::max_element(of) + size_t{1});
  for (const uint32_t host : of) ++on[host];
  const auto [least, most] = std::ranges::minmax(on);
  return {on.size(), least, most};
}

HostPlaces::HostPlaces(const HostOfRank& of, size_t ranks, size_t first) : at_(ranks) {
  ranks_.resize(of.empty() ? 1 : *std::ranges::max_element(of) + size_t{1});
  const auto add = [&](size_t r) {
    const size_t host = of.empty() ? 0 : of[r];
    at_[r] = {host, ranks_[host].size()};
    ranks_[host].push_back(r);
  };
  if (first < ranks) add(first);
  for (size_t r = 0; r < ranks; ++r)
    if (r != first) add(r);
  columns_ = std::ranges::min_element(ranks_, {}, &std::vector<size_t>::size)->size();
}

}  // namespace troupe::internal::collective
