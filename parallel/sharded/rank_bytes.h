// What an actor that has a part of a model keeps in how many bytes, and what it sent in a step.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "actors/actor.h"
#include "parallel/sharded/shard.h"

namespace troupe::parallel {

/// Bytes of one actor of a model: a replica, a rank of a stage.
struct RankBytes {
  std::string actor;       ///< "Net#0:3 on w1"
  int64_t whole = 0;       ///< of all its parameters, if replicas divided none
  int64_t frozen = 0;      ///< those of them that need no gradient, and are not divided
  int64_t in_parts = 0;    ///< those of them that are in parallel::Sharded parts, with Shard::all
  int64_t parameters = 0;  ///< that it keeps between steps
  int64_t gradients = 0;   ///< that it has after a pass, if all parameters have one
  int64_t state = 0;       ///< of its optimizers, as it is now
  /// What it brings to sums over replicas in a step, of parameters that are not divided: compressed as it
  /// travels. -1: as many bytes as they have.
  int64_t summed = -1;
  /// What its worker has sent in operations of groups since the actor's last step began, until calls that
  /// record nothing came; 0 before the first. Of replicas that learn by themselves, since their last mean
  /// began: in as many steps as there are between two. Measured; without what devices send each other.
  int64_t sent = 0;
  /// Of that, what formulas say of its conversions over ranks (parallel/tensor/convert.h).
  int64_t converted = 0;
  /// Activations, and gradients of those that came, that went to stages of other workers in the last step.
  int64_t to_stages = 0;
};

/// How replicas divide a model, and how often they gather parts of it and sum gradients.
struct ShardWays {
  Shard shard = Shard::none;
  Per gather = Per::use, reduce = Per::use;
  int64_t uses = 1;     ///< of each part in a step, forward and back: micro-batches
  bool spares = false;  ///< each has the pieces of the one before it as well
};

/// What formulas say that replica r keeps, leaves after a pass, has of states that are as large as these, and
/// sends in a step.
RankBytes expected_of(const std::vector<RankBytes>& replicas, size_t r, const ShardWays& ways);
/// The same as a table for people, with a name for each row. `stages`: with what went to other stages.
std::string bytes_table(const std::vector<std::pair<std::string, RankBytes>>& rows, bool stages = false);

/// In the mailbox of an actor: a step of it begins.
void count_sent_from_here();
/// In the mailbox of an actor: what it sends from here on is of no step, but an evaluation's, say.
void count_sent_up_to_here();
/// In the mailbox of an actor: what it keeps, and sent since then.
RankBytes rank_bytes(Actor& actor);

}  // namespace troupe::parallel
