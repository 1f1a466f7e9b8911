#include "parallel/data/step_reduction.h"

#include "autograd/add_gradient.h"
#include "autograd/distributed/context.h"
#include "core/base/call_frame.h"
#include "parallel/data/pass_reduction.h"

namespace troupe::parallel {

// What is to be reduced, and the sums, until they go to the context. Thread-safe but for total(), which is
// asked in the mailbox.
class StepReduction::Gradients final : public autograd::PassGradients {
 public:
  explicit Gradients(uint64_t number) : number_(number), context_(frame().context) {}
  uint64_t context() const override { return context_; }
  uint64_t number() const override { return number_; }
  Tensor total(const Tensor& leaf) const override { return autograd::context_gradient(leaf); }
  Tensor take(const Tensor&) override { return std::exchange(told_, {}); }
  void add(const Tensor& leaf, Tensor grad) override {
    const internal::Lock lock(mutex_);
    const auto [at, is_new] = index_.try_emplace(leaf.impl(), sums_.size());
    if (is_new) sums_.emplace_back(leaf, Tensor());
    Tensor& sum = sums_[at->second].second;
    sum =
        sum.defined() ? internal::autograd::sum_gradients(std::move(sum), std::move(grad)) : std::move(grad);
  }
  void bring(Tensor gradient) { told_ = std::move(gradient); }
  std::vector<std::pair<Tensor, Tensor>> sums() {
    const internal::Lock lock(mutex_);
    return std::move(sums_);
  }

 private:
  const uint64_t number_, context_;
  Tensor told_;
  internal::Mutex mutex_;
  std::unordered_map<const TensorImpl*, size_t> index_ TROUPE_GUARDED_BY(mutex_);
  std::vector<std::pair<Tensor, Tensor>> sums_ TROUPE_GUARDED_BY(mutex_);
};

StepReduction::StepReduction(std::shared_ptr<ReducerState> state, uint64_t step, double share)
    : state_(std::move(state)), plan_(state_->plan_of_step(step, share)) {
  for (size_t i = 0; i < state_->parameters.size(); ++i) expected_[state_->parameters[i].impl()] = i;
  const uint64_t call = state_->next_call();
  gradients_ = std::make_shared<Gradients>(call);
  reduction_ = std::make_shared<PassReduction>(state_, gradients_, plan_, call);
  end_ = reduction_->end();
  reduction_->ask_for_order();
}

StepReduction::~StepReduction() {
  if (is_over_) return;
  if (frame().actor) try {
      state_->give_up(plan_, why_);
    } catch (const Error&) {  // the actor, or its worker, ends: all hear of that
    }
  end_.cancel();
}

bool StepReduction::expects(const Tensor& leaf) const { return expected_.contains(leaf.impl()); }

void StepReduction::told(const Tensor& leaf, Tensor sum, Tensor seen) {
  const NoGradGuard guard;
  const size_t index = expected_.extract(leaf.impl()).mapped();
  if (sum.defined()) {
    Tensors own{std::move(sum)};
    leaf.gradient_edge().node->run_hooks(own);
    sum = std::move(own[0]);
  }
  if (sum.defined() && seen.defined())
    sum = internal::autograd::sum_gradients(std::move(sum), std::move(seen));
  else if (seen.defined())
    sum = std::move(seen);
  gradients_->bring(std::move(sum));
  tell(index);
}

void StepReduction::tell(size_t index) {
  try {
    reduction_->told(index);
  } catch (...) {
    why_ = current_error();
    throw;
  }
}

Task<void> StepReduction::end() {
  gradients_->bring({});
  for (size_t i = 0; i < state_->parameters.size(); ++i)
    if (expected_.erase(state_->parameters[i].impl())) tell(i);
  tell(state_->parameters.size());
  try {
    const Future<void> ending = end_;
    co_await ending;
  } catch (...) {
    why_ = current_error();
    throw;
  }
  is_over_ = true;
  for (auto& [leaf, grad] : gradients_->sums()) {
    const Tensor before = autograd::exchange_context_gradient(leaf, grad);
    if (before.defined())
      (void)autograd::exchange_context_gradient(leaf, internal::autograd::sum_gradients(before, grad));
  }
}

}  // namespace troupe::parallel
