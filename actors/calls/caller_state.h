// What the caller of a call knows of it.
#pragma once
#include <memory>
#include <string>

#include "core/value/value.h"

namespace troupe::internal::actors {

class ActorCell;

/// What the caller remembers of a call until its reply is there.
struct CallerState {
  WorkerId to = kNoWorker;
  uint64_t context = 0;
  std::shared_ptr<ActorCell> cell;  ///< the calling actor; null outside actors
  std::string label;                ///< "Layer::forward", for error texts
  uint64_t joint = 0;               ///< CallOptions::joint
};

}  // namespace troupe::internal::actors
