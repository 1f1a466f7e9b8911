// Parameters of a stage's actor, by name.
#pragma once
#include <string>

#include "actors/actor.h"
#include "actors/worker/worker.h"

namespace troupe::parallel {

/// Of an nn::ModuleActor by its name, of others by its number in Actor::parameters(). `invalid`, naming those
/// that there are, if there is none.
Tensor parameter_of(Actor& actor, const std::string& name);

inline constexpr const char* kParameter = "pipeline.parameter";  // name -> its value, a copy
/// Name and value: the parameter becomes a copy of one of another actor, which has its gradient and counts it
/// in norms of all gradients.
inline constexpr const char* kTie = "pipeline.tie";
inline constexpr const char* kKeepVersions = "pipeline.keep_versions";  // optim::set_copy_on_write()

/// Part of install_pipeline().
void install_parameters(internal::actors::Worker& worker);

}  // namespace troupe::parallel
