// The end of a program that has no memory left for what it cannot do without.
#pragma once

namespace troupe {

/// Ends the process with code 1 and one line on standard error. For threads that others wait for: a message
/// that is lost there would be waited for until a timeout.
[[noreturn]] void end_without_memory();

/// Loads now what the system's library loads when it is first needed, and ends the program where it cannot
/// (libgcc_s, for ending threads and for exceptions).
void load_unwinder();

}  // namespace troupe
