// The exit code that an error of a program means.
#pragma once

namespace troupe::internal {

/// Of the exception that is being handled: kExitCheckpoint, kExitPeerLost, else kExitFailed.
int exit_code_of_exception();

}  // namespace troupe::internal
