#include "core/base/out_of_memory.h"

#include <execinfo.h>
#include <unistd.h>

namespace troupe {

void end_without_memory() {
  constexpr char text[] = "troupe: error: no memory is left, and the program cannot go on\n";
  _exit(write(STDERR_FILENO, text, sizeof text - 1) < 0 ? 2 : 1);
}

void load_unwinder() {
  void* nowhere = nullptr;
  backtrace(&nowhere, 1);
}

}  // namespace troupe
