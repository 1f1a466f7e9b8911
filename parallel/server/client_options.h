// How a trainer is known to its servers, and how long it waits for them.
#pragma once
#include <optional>
#include <string>

#include "core/base/clock.h"

namespace troupe::parallel {

struct ClientOptions {
  std::string name;  ///< of the trainer; empty: its actor's path and a number, "Trainer#1/client#0", wherever
                     ///< it lives
  /// Of calls, waiting for other trainers included; empty: the worker's; zero: none.
  std::optional<Duration> timeout = {};
};

}  // namespace troupe::parallel
