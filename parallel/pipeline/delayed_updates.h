// Updates that come one step late, so that a step begins while the one before it is still run backward.
#pragma once
#include <deque>
#include <memory>

#include "autograd/distributed/optim/distributed_optimizer.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/staleness/staleness_ledger.h"
#include "parallel/staleness/staleness_metrics.h"

namespace troupe::parallel {

struct DelayedOptions {
  bool lr_by_delay = false;  ///< an update with delay d has the rate lr / (1 + d), as ServerOptions has it
};

/// Trains a pipeline without the idle time between steps: w(t + 1) = w(t) - lr g(w(t - 1)), where t counts
/// steps, and the same for other optimizers. The first two steps have the same weights. Narayanan and others,
/// "Memory-efficient pipeline-parallel DNN training" (2021), PipeDream-2BW. All micro-batches of a step have
/// the same weights in forward and backward, exactly: where an update comes while a step on its way holds the
/// weights of before, both versions are kept until that step is over.
///
///   DelayedUpdates train(cluster.here(), pipeline, optimizer);
///   for (auto [x, y] : loader) (void)train.step(x, y);  // a future of the result
///   train.finish();
///
/// Belongs to the thread that made it. Makes the contexts of its steps itself; takes no part in one that is
/// alive there. Pipeline and optimizer have to live longer.
class DelayedUpdates {
 public:
  DelayedUpdates(const Here& here, Pipeline& pipeline, optim::DistributedOptimizer& optimizer,
                 const DelayedOptions& options = {});
  /// What is on its way is given up.
  ~DelayedUpdates();
  DelayedUpdates(const DelayedUpdates&) = delete;

  /// Begins a step. Waits until the step before has done all its forwards, and the one before that is over,
  /// and makes the update of the latter. Throws the errors of those two; then all that was on its way is
  /// given up, and the next step begins as the first.
  Future<StepResult> step(const Value& batch, const Value& targets, const StepOptions& options = {});
  /// Waits for the steps on their way, and makes their updates. Throws their errors, as step().
  void finish();
  /// How late the gradients of steps were that have been used: by delay, and with the rows of their batches
  /// as weights, as servers have it. Metrics of the worker that drives have the delays, as
  /// "pipeline#1.delay_1".
  const StalenessLedger& report() const& { return ledger_; }
  StalenessLedger report() && { return std::move(ledger_); }

 private:
  struct Flight {
    std::unique_ptr<autograd::Context> context;
    Future<StepResult> result;
    Future<void> forwards;
    int64_t version = 0;  // updates that are in its weights
    double rows = 1;
  };
  static void wait_for_forwards(const Flight& flight);
  void update_oldest();
  void step_optimizer(const autograd::Context& context, int64_t delay);
  void drop();

  Here here_;
  Pipeline& pipeline_;
  optim::DistributedOptimizer& optimizer_;
  Future<void> ready_;  // the actors keep versions
  std::deque<Flight> flights_;
  const DelayedOptions options_;
  int64_t version_ = 0;  // updates so far
  StalenessLedger ledger_;
  StalenessMetrics::Entry entry_;
};

}  // namespace troupe::parallel
