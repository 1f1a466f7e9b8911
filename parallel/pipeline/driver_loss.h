// The loss of a pipeline whose caller computes it: an actor of the caller's worker, behind the last stage.
#pragma once
#include <functional>
#include <map>
#include <vector>

#include "actors/actor.h"
#include "parallel/pipeline/skip_links.h"
#include "rref/any_ref.h"

namespace troupe::parallel {

/// A Pipeline makes one.
class DriverLoss final : public Actor {
 public:
  using Function = std::function<Tensor(const Value& output, const Value& target)>;

  /// A step begins; the one before it may still run. Only on the worker itself (RRef::local): functions do
  /// not travel.
  void begin(uint64_t step, Function function, std::vector<Value> targets, std::vector<double> weights,
             double loss_scale, AnyRef last);
  /// A step is over: the losses of its micro-batches, in their order.
  std::vector<double> end(uint64_t step);

  /// As Runner::receive: an output of the last stage. Sends the gradients back.
  Task<void> receive(uint64_t step, SkipLink from, int64_t micro_batch, bool forward, Value output,
                     int64_t sent);

  static constexpr auto remote = methods<&DriverLoss::receive>;

 private:
  struct Step {
    Function function;
    std::vector<Value> targets;
    std::vector<double> weights, losses;
    double loss_scale = 0;  // as in StepOptions
    AnyRef last;            // the runner of the last stage
  };
  std::map<uint64_t, Step> steps_;
};

}  // namespace troupe::parallel
