// Optimizers by name, of actors or of tensors here.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "autograd/distributed/optim/distributed_optimizer.h"
#include "optim/optimizer.h"
#include "script/session.h"

namespace troupe::script {

/// An optimizer of actors, or of tensors here.
class NamedOptimizer {
 public:
  /// What a list has it is for: actors, or tensors. Options by name; groups = {{params = "*.bias",
  /// weight_decay = 0}} chooses parameters of actors by their names. `invalid` for both kinds, for none, and
  /// as optim::make().
  static NamedOptimizer make(const std::string& name, Value what, ValueMap options);
  /// One of tensors here, in groups with options of their own.
  static NamedOptimizer make(const std::string& name, std::vector<optim::OptionGroup> groups);

  const std::shared_ptr<optim::DistributedOptimizer>& distributed() const { return distributed_; }
  const std::shared_ptr<optim::Optimizer>& local() const { return local_; }
  optim::Tunable& tunable() const {
    return distributed_ ? static_cast<optim::Tunable&>(*distributed_) : *local_;
  }
  const std::string& name() const { return name_; }
  /// One step: with the gradients of a step of the session, or the .grad of tensors here. `invalid` without a
  /// step where there are actors: `call` says how to give one.
  void step(Session& session, const Step* step, const std::string& call);
  /// Drops the gradients of tensors here; those of actors end with their step.
  void zero_grad();
  void save(const std::string& path);
  void load(const std::string& path);
  /// Its name and the options of group 0.
  std::string str() const;

 private:
  std::shared_ptr<optim::DistributedOptimizer> distributed_;
  std::shared_ptr<optim::Optimizer> local_;
  std::string name_;
};

/// One step of several optimizers of actors, whole: optim::step_all(). As NamedOptimizer::step().
void step_all(const std::vector<const NamedOptimizer*>& optimizers, const Step* step,
              const std::string& call);

/// Scales the gradients of several optimizers, as if they were one vector; the norm before. As
/// NamedOptimizer::step().
double clip_grad_norm(const std::vector<const NamedOptimizer*>& optimizers, double most, const Step* step,
                      const std::string& call);

}  // namespace troupe::script
