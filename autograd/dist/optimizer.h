// Optimizers that update parameters where they live.
#pragma once
#include <string>
#include <vector>

#include "autograd/dist/context.h"
#include "optim/optimizer.h"
#include "rref/any_ref.h"

namespace troupe::optim {

/// Registers what actors need to be optimized from elsewhere. Part of every worker's set-up.
void install_distributed(actors::Worker& worker);

/// In an actor's constructor: a distributed optimizer's step then gives its parameters new elements where
/// recorded steps hold the old ones, instead of making the passes in flight invalid. Each pass has the
/// gradients of the version that its forward pass saw. Costs a copy of such a parameter per step. Views and
/// detach()ed handles keep the old elements. (An actor that steps itself calls replace_if_held().)
void set_copy_on_write();

/// See Distributed.
class DistributedOptimizer {
 public:
  DistributedOptimizer(std::vector<AnyRef> actors, const std::string& name, const ValueMap& options);
  ~DistributedOptimizer();
  DistributedOptimizer(const DistributedOptimizer&) = delete;

  /// One step on every actor, in its mailbox, with the gradients of `context`; waits for all. Throws the
  /// first error, once all have ended: it names the worker and the actor; other actors may have stepped.
  void step(const autograd::Context& context) { step_async(context).get(); }
  Future<void> step_async(const autograd::Context& context);
  /// Used from the next step on.
  void set_lr(double lr);
  double lr() const { return lr_; }

 private:
  std::vector<AnyRef> actors_;
  std::string key_;
  double lr_;
  std::vector<Future<Value>> created_;  // failures show at the first step
};

/// Distributed<SGD> opt({a, b}, {.lr = 0.1}): one optimizer of type O for the parameters() of each actor,
/// beside the actor. Belongs to one thread.
template <class O>
class Distributed : public DistributedOptimizer {
 public:
  /// `invalid` on options out of range, at once.
  Distributed(std::vector<AnyRef> actors, typename O::Options options = {})
      : DistributedOptimizer(std::move(actors), O::kName, O::Options::from(options.to_map()).to_map()) {}
};

}  // namespace troupe::optim
