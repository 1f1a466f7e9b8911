#include "parallel/pipeline/pipelines_report.h"

#include <fmt/format.h>

#include "core/base/readable_bytes.h"

namespace troupe::parallel {

std::string PipelinesReport::str() const {
  std::vector<std::pair<std::string, RankBytes>> rows;
  int64_t all = 0;
  for (size_t p = 0; p < places.size(); ++p) {
    const auto& [name, ranks] = places[p];
    rows.emplace_back(name + ", by formula", expected(p, 0));
    for (size_t r = 0; r < ranks.size(); ++r)
      rows.emplace_back("  " + (replicas.empty() ? "" : fmt::format("{} {}: ", replicas, r)) + ranks[r].actor,
                        ranks[r]);
    all += ranks[0].whole;
  }
  return fmt::format("{} with {}, {} of parameters in a replica, {} micro-batches\n", mesh, word(ways.shard),
                     readable_bytes(all), ways.uses) +
         bytes_table(rows, true) + (last_step.empty() ? "" : "\n" + last_step);
}

}  // namespace troupe::parallel
