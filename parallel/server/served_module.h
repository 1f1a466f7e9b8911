// A network on a worker whose parameters are in servers: what scripts make trainers and stages of.
#pragma once
#include <memory>

#include "autograd/distributed/optim/module_actor.h"
#include "parallel/server/served_parameters.h"

namespace troupe::parallel {

/// An actor around a module that nn::make() makes. Each forward pulls the parameters, recorded in the context
/// of its call; push() gives the servers the gradients that the context has for them. Every program knows it.
/// Optimizers of actors have nothing to do with it: the servers have theirs.
class ServedModule final : public Actor {
 public:
  /// `served`: what serve() gave for the parameters of a module of the same specification. `invalid` if
  /// shapes differ.
  ServedModule(Value spec, Served served);
  Task<Tensor> forward(Tensor x);
  /// `weight`: how many examples the gradients are of.
  Task<bool> push(double weight);
  Task<void> leave();
  Tensors parameters() override { return {}; }

  static constexpr auto remote = methods<
      doc<constructor<Value, Served>, "A network whose parameters are in servers.", "spec", "served">,
      doc<&ServedModule::forward, "The network's result, with the parameters that the servers have.", "x">,
      doc<&ServedModule::push, "Gives the servers the context's gradients; false if they came too late.",
          "weight">,
      doc<&ServedModule::leave, "The trainer goes.">>;

 private:
  std::shared_ptr<nn::Layer> net_;
  Client client_;
};

}  // namespace troupe::parallel
