// What an actor that is optimized from elsewhere may say, and what its worker needs.
#pragma once
#include "actors/actor.h"

namespace troupe::internal {

/// Registers what actors need to be optimized from elsewhere. Part of every worker's set-up.
void install_optimized_actors(actors::Worker& worker);

}  // namespace troupe::internal

namespace troupe::optim {

/// In an actor's constructor: a distributed optimizer's step then gives its parameters new elements where
/// recorded steps hold the old ones, instead of making the passes in flight invalid. Each pass has the
/// gradients of the version that its forward pass saw. Costs a copy of such a parameter per step. Views and
/// detach()ed handles keep the old elements. (An actor that steps itself calls replace_if_held().)
void set_copy_on_write();

}  // namespace troupe::optim
