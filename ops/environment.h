// What the environment says to operators.
#pragma once

namespace troupe::ops {

/// Throws what is wrong with TROUPE_NUM_THREADS, TROUPE_TILES or TROUPE_AMX now, and not in the first
/// operator that needs to know.
void check_environment();

}  // namespace troupe::ops
