// What replicas of a model keep in how many bytes, and what they send each other in a step.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/sharded/shard.h"

namespace troupe::parallel {

/// Bytes of one replica.
struct ReplicaBytes {
  std::string actor;       ///< "Net#0:3 on w1"
  int64_t whole = 0;       ///< of all parameters of the model
  int64_t in_parts = 0;    ///< those of them that are in parallel::Sharded parts, with Shard::all
  int64_t parameters = 0;  ///< that it keeps between steps
  int64_t gradients = 0;   ///< that it has after a pass, if all parameters have one
  int64_t state = 0;       ///< of its optimizers, as it is now
  /// What its worker has sent in operations of groups since its last step, or call, began. Measured; without
  /// what devices send each other.
  int64_t sent = 0;
};

struct ReplicasReport {
  Shard shard = Shard::none;
  std::vector<ReplicaBytes> replicas;

  /// What formulas say that replica r keeps, leaves after a pass, has of states that are as large as these,
  /// and sends in a step of one pass.
  ReplicaBytes expected(size_t r) const;
  /// A table for people.
  std::string str() const;
};

}  // namespace troupe::parallel
