// The actor "Module": a network that is described by a value, for programs without a type of their own.
#pragma once
#include "actors/cell/actor_type.h"

namespace troupe::nn {

/// The actor type "Module", which every program knows. It is made by name, from a specification that
/// nn::make() takes, and called by name:
///
///   const AnyRef net(cluster.here().table().spawn(worker, "Module", 0, {nn::spec_of("linear", {784, 10})}));
///   net.call("forward", {x});   // forward(x: tensor) -> tensor
///   net.call("describe", {});   // describe() -> string: nn::summary()
///
/// What works on actors around a module works on it: remote_state_dict(), set_remote_training(),
/// optim::DistributedOptimizer, stages of pipelines.
///
/// Empty for a program that has an actor type called Module itself, in no namespace: that one has the name
/// (`own` is what the program names, beside what its spawn<T>() mention).
internal::actors::TypeRegistry hosted_module_types(const internal::actors::TypeRegistry& own);

}  // namespace troupe::nn
