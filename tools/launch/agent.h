// `troupe run` on another host: starts the workers that it is told to, and ends with whoever told it.
#pragma once

namespace troupe::tools {

/// The whole life of `troupe run --agent`: see tools/launch/assignment.h. Returns the exit code.
int agent_main();

}  // namespace troupe::tools
