// What the replicas of this library ask of their reducer beyond what programs do.
#pragma once
#include <memory>
#include <vector>

#include "parallel/data/gradient_reducer.h"
#include "parallel/data/replica_pieces.h"

namespace troupe::parallel {
class StepReduction;
}

namespace troupe::internal::parallel {

class ReplicaReducer {
 public:
  using GradientReducer = troupe::parallel::GradientReducer;
  /// Parts are reduced with Shard::gradients.
  ReplicaReducer(Group group, Tensors parameters, const troupe::parallel::ReducerOptions& options,
                 troupe::parallel::ReplicaPieces pieces)
      : reducer_(std::move(group), std::move(parameters), options, std::move(pieces)) {}
  /// Null: Shard::none.
  std::shared_ptr<troupe::parallel::CutParameters> cut() const;

  const GradientReducer& operator*() const& { return reducer_; }
  const GradientReducer* operator->() const { return &reducer_; }

  /// Sums gradients of a step of all members, in the context of the call. Null: the context has to do it, in
  /// reduce_step(), since passes of it accumulate, or others hear of gradients of the parameters.
  std::unique_ptr<troupe::parallel::StepReduction> begin_step(uint64_t step, double share) const;
  /// This is reduce() for the step of that number on all members; StepReduction says what it takes.
  troupe::Task<void> reduce_step(uint64_t step, double share, Tensors leaves, Tensors gradients) const {
    return reducer_.reduce_step(step, share, std::move(leaves), std::move(gradients));
  }
  /// Accumulates, as accumulate(), a pass that is none of backward() or reduce(), of whose rows the reduce()
  /// after it takes the mean with its own.
  troupe::parallel::Accumulation accumulate_rows(double rows) const { return reducer_.accumulate_as(rows); }
  /// A pass that is none of backward() or reduce() hands its gradients on, each when nothing more comes for
  /// the parameter; undefined: nothing came. `takes` is called in the mailbox of the actor.
  troupe::parallel::Accumulation hand_on(
      std::function<void(const Tensor& parameter, Tensor gradient)> takes) const {
    return reducer_.accumulate_as(0, std::move(takes));
  }
  /// What passes under accumulate_rows() have left for a parameter, times their rows, which then waits no
  /// more. Undefined: nothing.
  Tensor take_waiting(const Tensor& parameter) const { return reducer_.take_waiting(parameter); }
  /// What compression has left out of gradients so far; for a reducer of the same parameters.
  StateDict residuals() const;
  void load_residuals(const StateDict& residuals) const;
  /// RankBytes::summed.
  int64_t summed_bytes() const;
  /// A pass that comes from elsewhere reaches all parameters by this one, which has no elements that count.
  Tensor anchor() const;
  /// A driver accumulates in the context of the call.
  void set_accumulating(bool on) const;

 private:
  GradientReducer reducer_;
};

}  // namespace troupe::internal::parallel
