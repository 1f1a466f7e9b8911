// Backward passes in which every step fails once: before, between and after the messages that a part sends.
#pragma once
#include "tests/soak/run.h"

namespace troupe::soak {

/// One simulated cluster: a random graph over its actors, then one or two passes over it, of any kind and
/// recorded or not. Each pass is tried until it succeeds, and each time a later one of its steps fails: a
/// function's rule, a hook of a result or of a leaf, or a hook that runs when gradients are final. A pass
/// that fails has to end with that error, leave nothing, and change no number that follows. `calls` counts
/// passes, `errors` those that failed, `faults` messages without gradients, of exact passes.
Report planted(uint64_t seed, bool tracing = false);

}  // namespace troupe::soak
