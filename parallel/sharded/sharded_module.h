// A network on a worker that replicas with Shard::all have pieces of: what scripts make replicas of.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "autograd/distributed/optim/module_actor.h"
#include "core/value/value.h"
#include "parallel/sharded/member_part.h"

namespace troupe::parallel {

/// An actor around a module that nn::make() makes. Each layer of a sequential is a part; any other module is
/// one. Its parameters have the names that they have in "Module". Every program knows it.
class ShardedModule final : public internal::AnyModuleActor, public HasMemberParts {
 public:
  explicit ShardedModule(const Value& spec);
  Task<Tensor> forward(Tensor x);
  nn::Module& any_module() override { return *net_; }
  std::vector<MemberPart*> member_parts() override;

  static constexpr auto remote =
      methods<doc<constructor<Value>, "A network whose layers are parts of replicas.", "spec">,
              doc<&ShardedModule::forward, "The network's result.", "x">>;

 private:
  const std::shared_ptr<nn::Layer> net_;
  struct LayerPart {
    LayerPart(const std::string& name, nn::Layer* l) : layer(l), part(name, {{name, l}}) {}
    nn::Layer* const layer;
    MemberPart part;
  };
  std::deque<LayerPart> parts_;
};

}  // namespace troupe::parallel
