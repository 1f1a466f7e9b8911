// A step of a pipeline on one member of a group: gradients are summed over all members while its last pass
// runs.
#pragma once
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "actors/cell/task.h"
#include "core/base/error.h"
#include "parallel/data/reducer_state.h"

namespace troupe::parallel {

class PassReduction;

/// It belongs to the actor. Unless it comes to its end, nobody waits for this member.
class StepReduction {
 public:
  /// Steps of all members that have the same number belong together. `share`: what this member's gradients
  /// count for; those of all add up to 1. `invalid` for shares that an aggregation cannot take.
  StepReduction(std::shared_ptr<ReducerState> state, uint64_t step, double share);
  StepReduction(const StepReduction&) = delete;
  ~StepReduction();
  /// Whether this is one of the parameters, that it was not told of.
  bool expects(const Tensor& leaf) const;
  /// This is all that the step has for the leaf, which it expects: a sum that no hook of the leaf has seen,
  /// and one that they have. Undefined: nothing.
  void told(const Tensor& leaf, Tensor sum, Tensor seen = {});
  /// What nothing was told of has no gradient here. The sums are then in the context of the call.
  Task<void> end();

 private:
  class Gradients;
  void tell(size_t index);
  const std::shared_ptr<ReducerState> state_;
  const PassPlan plan_;
  std::unordered_map<const TensorImpl*, size_t> expected_;
  std::shared_ptr<Gradients> gradients_;
  std::shared_ptr<PassReduction> reduction_;
  Future<void> end_;
  Error why_{ErrorKind::cancelled, "the step was given up"};
  bool is_over_ = false;
};

}  // namespace troupe::parallel
