// A network on a worker that replicas with Shard::all have pieces of: what scripts make replicas of.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "autograd/distributed/optim/module_actor.h"
#include "core/value/value.h"
#include "parallel/sharded/sharded.h"

namespace troupe::parallel {

/// A part that an actor has beside a module, which is none.
struct PartBeside final : ShardedPart {
  PartBeside(std::string n, nn::Layer* l) : name(std::move(n)), layer(l) {}
  using ShardedPart::use;
  const std::string name;  ///< of the layer in the actor's module; empty: it is that
  nn::Layer* const layer;
};

/// An actor around a module that nn::make() makes. Each layer of a sequential is a part; any other module is
/// one. Its parameters have the names that they have in "Module". Every program knows it.
class ShardedModule final : public nn::AnyModuleActor {
 public:
  explicit ShardedModule(const Value& spec);
  Task<Tensor> forward(Tensor x);
  nn::Module& any_module() override { return *net_; }
  std::deque<PartBeside>& parts() & { return parts_; }

  static constexpr auto remote =
      methods<doc<constructor<Value>, "A network whose layers are parts of replicas.", "spec">,
              doc<&ShardedModule::forward, "The network's result.", "x">>;

 private:
  const std::shared_ptr<nn::Layer> net_;
  std::deque<PartBeside> parts_;
};

}  // namespace troupe::parallel
