// Actor types that servers need on every worker.
#pragma once
#include "actors/cell/actor_type.h"

namespace troupe::internal::parallel {

/// Part of every cluster.
actors::TypeRegistry server_actors();

}  // namespace troupe::internal::parallel
