// What all actors around a module are to this library.
#pragma once
#include "actors/actor.h"
#include "nn/module.h"

namespace troupe::internal {

/// An actor around a module, of whatever type.
class AnyModuleActor : public Actor {
 public:
  virtual troupe::nn::Module& any_module() = 0;
  Tensors parameters() override { return any_module().parameters(); }
};

}  // namespace troupe::internal
