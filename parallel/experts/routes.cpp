#include "parallel/experts/routes.h"

#include <algorithm>
#include <numeric>

namespace troupe::internal::parallel {

Choices kept_of(const Choices& chosen, int64_t capacity) {
  if (capacity < 0 || chosen.empty()) return chosen;
  Choices kept = chosen;
  std::vector<int64_t> left(chosen[0].size(), capacity);
  for (auto& of_rank : kept)
    for (size_t e = 0; e < left.size(); ++e) {
      of_rank[e] = std::min(of_rank[e], left[e]);
      left[e] -= of_rank[e];
    }
  return kept;
}

Routes::Routes(const std::vector<int64_t>& chosen, const Choices& kept, const std::vector<int64_t>& experts,
               size_t rank)
    : rows(experts.size(), std::vector<int64_t>(experts.size(), 0)) {
  std::vector<size_t> first(experts.size() + 1, 0);  // expert of each rank
  for (size_t r = 0; r < experts.size(); ++r) first[r + 1] = first[r] + static_cast<size_t>(experts[r]);
  std::vector<std::vector<int64_t>> of(first.back());
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto e = static_cast<size_t>(chosen[i]);
    if (static_cast<int64_t>(of[e].size()) < kept[rank][e]) of[e].push_back(static_cast<int64_t>(i));
  }
  for (const auto& choices : of) order.insert(order.end(), choices.begin(), choices.end());
  for (size_t k = 0; k < experts.size(); ++k)
    for (size_t r = 0; r < experts.size(); ++r)
      for (size_t e = first[r]; e < first[r + 1]; ++e) rows[k][r] += kept[k][e];

  // Rows come by rank, and of one rank by expert.
  std::vector<std::vector<int64_t>> came(static_cast<size_t>(experts[rank]));
  int64_t row = 0;
  for (size_t r = 0; r < experts.size(); ++r)
    for (size_t e = 0; e < came.size(); ++e)
      for (int64_t i = 0; i < kept[r][first[rank] + e]; ++i) came[e].push_back(row++);
  for (const auto& own : came) {
    by_expert.insert(by_expert.end(), own.begin(), own.end());
    of_expert.push_back(static_cast<int64_t>(own.size()));
  }
}

}  // namespace troupe::internal::parallel
