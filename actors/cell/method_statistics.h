// What is known of one kind of work of an actor type.
#pragma once
#include "actors/runtime/dispatch_history.h"
#include "actors/cell/sole_result.h"

namespace troupe::actors {

struct Habits {
  Pace pace;
  SoleResult sole_result;
};

}  // namespace troupe::actors
