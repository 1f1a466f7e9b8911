// How a trainer is known to its servers, and how long it waits for them.
#pragma once
#include <optional>
#include <string>

#include "core/base/clock.h"

namespace troupe::parallel {

struct ClientOptions {
  std::string name;  ///< of the trainer; empty: that of the worker and a number
  /// Of calls, waiting for other trainers included; empty: the worker's; zero: none.
  std::optional<Duration> timeout = {};
};

}  // namespace troupe::parallel
