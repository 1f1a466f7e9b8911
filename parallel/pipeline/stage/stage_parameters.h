// Parameters of a stage's actor, by name.
#pragma once
#include <string>

#include "actors/actor.h"
#include "actors/worker/common_method.h"
#include "rref/any_ref.h"

namespace troupe::parallel {

/// Of an nn::ModuleActor by its name, of others by its number in Actor::parameters(). `invalid`, naming those
/// that there are, if there is none.
Tensor parameter_of(Actor& actor, const std::string& name);

/// Stage to stage: one of its parameters has copies elsewhere. A copy of its value.
inline constexpr internal::actors::CommonMethod<Tensor(std::string name)> kParameter{"pipeline.parameter"};
/// Pipeline to stage: a parameter becomes a copy of one of another stage, which has its gradient and counts
/// it in norms of all gradients. Answered when it has the value of that.
inline constexpr internal::actors::CommonMethod<void(std::string name, AnyRef of, std::string name_there)>
    kTie{"pipeline.tie"};
/// Pipeline to stage: updates will be delayed, so that elements are read after they have changed
/// (optim::set_copy_on_write()).
inline constexpr internal::actors::CommonMethod<void()> kKeepVersions{"pipeline.keep_versions",
                                                                      {.uncancellable = true}};

/// Part of install_pipeline().
void install_parameters(internal::actors::Worker& worker);

}  // namespace troupe::parallel
