#include "parallel/data/replicas_report.h"

#include <fmt/format.h>

#include "core/base/readable_bytes.h"

namespace troupe::parallel {

std::string ReplicasReport::str() const {
  std::vector<std::pair<std::string, RankBytes>> rows;
  if (!replicas.empty()) rows.emplace_back("by formula", expected(0));
  for (const RankBytes& b : replicas) rows.emplace_back(b.actor, b);
  return fmt::format("{} replicas with {} of a model of {}\n", replicas.size(), word(ways.shard),
                     readable_bytes(replicas.empty() ? 0 : replicas[0].whole)) +
         bytes_table(rows);
}

}  // namespace troupe::parallel
