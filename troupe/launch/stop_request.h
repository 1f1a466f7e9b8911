// Requests of the end that come to a process by other ways than StopSignal's own handlers.
#pragma once
#include <string>

namespace troupe::internal {

/// ask_to_stop(), of a signal to the process of worker `who`; the first one is said.
bool ask_to_stop(int signal, const std::string& who);
/// A signal to this process, in a handler of somebody else. False: nothing here ends by itself. A second one,
/// kSameRequest later, ends the process.
bool take_signal(int signal);

}  // namespace troupe::internal
