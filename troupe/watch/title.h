// What `ps` and `top` of the system show beside the command line of a process.
#pragma once
#include <string>

namespace troupe::internal::watch {

/// Puts `note` behind the arguments that others see: "digits --epochs 2 [w1 of 3, job 0f3a]". The program's
/// own arguments stay as they are. Once, and before the process has a second thread; false where it is not
/// done.
bool add_to_title(const std::string& note);

}  // namespace troupe::internal::watch
