// A StepWatch goes along with the steps of distributed optimizers: an attempt at a step of a job is one.
#pragma once
#include <memory>
#include <vector>

#include "autograd/distributed/optim/step_report.h"
#include "rref/any_ref.h"

namespace troupe::optim {

/// Whoever has a say in steps: DistributedOptimizer::set_watch().
class StepWatch {
 public:
  virtual ~StepWatch() = default;
  /// A step of these actors is about to begin, on the thread that asks for it. What this throws, the step
  /// throws instead.
  virtual void before_step(const std::vector<AnyRef>& actors) = 0;
  /// On any thread: it has ended on all of them. What it takes out of the report, nobody is told of.
  virtual void after_step(StepReport& report) = 0;
};

}  // namespace troupe::optim
