// The loss of a pipeline whose caller computes it: an actor of the caller's worker, behind the last stage.
#pragma once
#include <functional>
#include <vector>

#include "actors/actor.h"
#include "rref/any_ref.h"

namespace troupe::parallel {

/// Not for users: a Pipeline makes one.
class LossHere final : public Actor {
 public:
  using Function = std::function<Tensor(const Value& output, const Value& target)>;

  /// A step begins. Only on the worker itself (RRef::local): functions do not travel.
  void begin(uint64_t step, Function function, std::vector<Value> targets, std::vector<double> weights,
             AnyRef last);
  /// Of the micro-batches, in their order.
  const std::vector<double>& losses() const { return losses_; }
  void end() { last_ = {}, targets_.clear(); }

  /// As Runner::receive: an output of the last stage. Sends the gradients back.
  Task<void> receive(uint64_t step, int64_t stage, int64_t micro_batch, bool forward, Value output,
                     int64_t sent);

  static constexpr auto remote = methods<LossHere>("receive", &LossHere::receive);

 private:
  uint64_t step_ = 0;
  Function function_;
  std::vector<Value> targets_;
  std::vector<double> weights_, losses_;
  AnyRef last_;  // the runner of the last stage
};

}  // namespace troupe::parallel
