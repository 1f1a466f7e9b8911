// Standard output of a program: what it has printed must arrive.
#pragma once

namespace troupe {

/// First thing of a program; launch(), tools::run_main() and tools::Flags do it, and a second time does
/// nothing. From then on:
/// - What is printed and cannot be written (to a full disk, or because standard output was closed) is said on
///   standard error when the program ends, and its exit code 0 becomes 1.
/// - A standard descriptor that was closed stays so: no file or socket gets its number.
/// - Writes above the limit of a file's size (`ulimit -f`) fail, as on a full disk, instead of ending the
///   process by SIGXFSZ. A program that handles the signal keeps its handler.
void guard_output();

/// Writes what is buffered; `failed`, with the reason, if any of it could not be written. Said once: the end
/// of the program says nothing more of it.
void flush_output();

}  // namespace troupe
