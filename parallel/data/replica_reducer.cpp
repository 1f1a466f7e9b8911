#include "parallel/data/replica_reducer.h"

#include "core/base/call_frame.h"
#include "parallel/data/reducer_state.h"
#include "parallel/data/step_reduction.h"

namespace troupe::internal::parallel {

std::shared_ptr<troupe::parallel::CutParameters> ReplicaReducer::cut() const { return reducer_.state_->cut; }

std::unique_ptr<troupe::parallel::StepReduction> ReplicaReducer::begin_step(uint64_t step,
                                                                            double share) const {
  const auto& state = reducer_.state_;
  if (state->accumulates(frame().context) || state->is_watched_by_others()) return nullptr;
  return std::make_unique<troupe::parallel::StepReduction>(state, step, share);
}

StateDict ReplicaReducer::residuals() const {
  const auto& left = reducer_.state_->residuals;
  if (const auto& own = reducer_.state_->own) return own->state();
  return left ? left->state() : StateDict();
}

void ReplicaReducer::load_residuals(const StateDict& residuals) const {
  if (const auto& own = reducer_.state_->own) own->load_state(residuals);
  if (const auto& left = reducer_.state_->residuals) left->load_state(residuals);
}

int64_t ReplicaReducer::summed_bytes() const { return reducer_.state_->summed_bytes(); }

Tensor ReplicaReducer::anchor() const { return reducer_.state_->anchor; }

void ReplicaReducer::set_accumulating(bool on) const {
  reducer_.state_->set_accumulating(frame().context, on);
}

}  // namespace troupe::internal::parallel
