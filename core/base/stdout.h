// Standard output of a program: what it has printed must arrive.
#pragma once

namespace troupe {

/// Writes what is buffered; `failed`, with the reason, if any of it could not be written: to a full disk, for
/// one. Called at the end of launch() and of tools::run_main(), so that such a program does not end well.
void flush_output();

/// Writes above the limit of a file's size (`ulimit -f`) fail from now on, as on a full disk, instead of
/// ending the process by SIGXFSZ. Part of the two functions above; a program that handles the signal keeps
/// its handler.
void refuse_size_signal();

}  // namespace troupe
