// What replicas of a model keep in how many bytes, and what they send each other in a step.
#pragma once
#include <string>
#include <vector>

#include "parallel/sharded/rank_bytes.h"

namespace troupe::parallel {

struct ReplicasReport {
  ShardWays ways;
  std::vector<RankBytes> replicas;

  /// What formulas say that replica r keeps, leaves after a pass, has of states that are as large as these,
  /// and sends in a step of one pass.
  RankBytes expected(size_t r) const { return expected_of(replicas, r, ways); }
  /// A table for people.
  std::string str() const;
};

}  // namespace troupe::parallel
