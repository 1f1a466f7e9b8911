// What the ranks of pipelines on a mesh keep in how many bytes, and what they send in a step.
#pragma once
#include <string>
#include <vector>

#include "parallel/sharded/rank_bytes.h"

namespace troupe::parallel {

/// By place: a stage, and the coordinates in all dimensions but that of the replicas. What was measured as
/// sent is a worker's, of all its stages.
struct PipelinesReport {
  struct Place {
    std::string name;                 ///< "pp 1, tp 0"
    std::vector<RankBytes> replicas;  ///< in the order of their dimension
  };
  std::string mesh;       ///< "dp 2 x pp 2 x tp 2"
  std::string replicas;   ///< their dimension, "dp"; empty: there is one of each
  std::string last_step;  ///< how long it took, and how much of that was idle; empty before the first
  ShardWays ways;
  std::vector<Place> places;

  /// What formulas say that replica r of a place keeps, leaves after a step, has of states that are as large
  /// as these, and sends to other replicas and ranks in a step.
  RankBytes expected(size_t place, size_t r) const { return expected_of(places.at(place).replicas, r, ways); }
  /// A table for people.
  std::string str() const;
};

}  // namespace troupe::parallel
