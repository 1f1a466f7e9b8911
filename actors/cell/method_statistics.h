// What is known of one kind of work of an actor type.
#pragma once
#include "actors/cell/sole_result.h"
#include "actors/runtime/dispatch_history.h"

namespace troupe::internal::actors {

struct MethodStatistics {
  DispatchHistory history;
  SoleResult sole_result;
};

}  // namespace troupe::internal::actors
