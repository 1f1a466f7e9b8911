// How a program that nobody counts on yet becomes a worker of an elastic job.
#pragma once
#include <string>

#include "core/base/clock.h"
#include "troupe/launch/launch_environment.h"

namespace troupe::internal {

/// What worker 0 of a running elastic job gives to one more worker: its environment, with number, name of the
/// job and elastic terms. `job` has address, token and encryption. Waits up to `timeout` for worker 0.
/// `disconnected`: nobody is there; `invalid`: another token or version, or the job is not elastic.
LaunchEnvironment take_seat(LaunchEnvironment job, Duration timeout);

}  // namespace troupe::internal
