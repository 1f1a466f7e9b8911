// The Sharded parts of an actor, which are cut when it becomes one of several replicas.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "actors/actor.h"
#include "actors/cell/task.h"
#include "collective/group.h"
#include "core/graph/stateful.h"
#include "core/tensor/tensor.h"
#include "parallel/sharded/shard.h"

namespace troupe::parallel {

class PartPieces;
struct PartUses;

/// The parts of an actor, cut over a group of replicas of it, of which this is one.
class CutParts {
 public:
  CutParts() = default;
  /// From now on the actor's parameters are pieces. `invalid` if it has no
  /// parts, if one lies within another, or if they were cut before.
  CutParts(Actor& actor, const Group& group, Per gather, Per reduce, bool spares);
  /// This is CutParameters::regroup().
  void regroup(const Group& group) const;
  std::vector<std::shared_ptr<PartPieces>> pieces() const;
  /// The parameters as they were, which may be written until take().
  Tensors wholes() const;
  /// The pieces have their elements, and there are no whole ones any more.
  void take();
  bool is_piece(const Tensor& t) const;
  /// What this replica's gradients of parts count for, in the sum over all, from the next use on.
  void set_share(double share) const;
  /// The state of the actor's module with whole parameters in the place of pieces. All replicas do the same,
  /// with a new tag.
  Task<StateDict> whole_state(StateDict with_pieces, std::string tag) const;
  /// The other way: whole parameters become pieces. `invalid`, naming it, if one is missing or of another
  /// shape.
  StateDict load_pieces(StateDict whole) const;

 private:
  struct Part {
    std::shared_ptr<PartPieces> pieces;
    Tensors wholes;
  };
  std::vector<Part> parts_;
  std::shared_ptr<PartUses> uses_;  // null without parts
};

}  // namespace troupe::parallel
