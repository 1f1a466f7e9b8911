// How many things each of several has, if they are divided by weights.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace troupe::internal {

/// Whole parts of `all`, in sum all of them; those that are nearest to one more get what is left. Weights are
/// not negative, and one is more than 0.
template <class W>
std::vector<int64_t> proportional(int64_t all, const std::vector<W>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> parts;
  std::vector<std::pair<double, size_t>> missing;
  int64_t given = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double exact = static_cast<double>(all) * static_cast<double>(weights[i]) / sum;
    parts.push_back(static_cast<int64_t>(exact + 1e-9));
    given += parts.back();
    missing.emplace_back(static_cast<double>(parts.back()) - exact, i);
  }
  std::ranges::stable_sort(missing);
  for (size_t k = 0; given < all; ++k, ++given) ++parts[missing[k % missing.size()].second];
  return parts;
}

}  // namespace troupe::internal
