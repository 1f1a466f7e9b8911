#include "parallel/sharded/bucket_cuts.h"

#include <algorithm>
#include <numeric>

namespace troupe::parallel {

BucketCuts::BucketCuts(const std::vector<int64_t>& counts, size_t ranks) {
  constexpr int64_t kUnit = 16;
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const int64_t units = (total + kUnit - 1) / kUnit, n = static_cast<int64_t>(ranks);
  for (int64_t r = 0; r < n; ++r) {
    const int64_t from = std::min(total, units * r / n * kUnit),
                  end = std::min(total, units * (r + 1) / n * kUnit);
    elements_.push_back(end - from);
    parts_.emplace_back();
    int64_t first = 0;
    for (size_t k = 0; k < counts.size(); first += counts[k++]) {
      const int64_t a = std::max(from, first), b = std::min(end, first + counts[k]);
      if (a < b) parts_.back().push_back({k, a - first, b - a});
    }
  }
}

}  // namespace troupe::parallel
