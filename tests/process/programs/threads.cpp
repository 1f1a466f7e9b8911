// Prints how many threads an operator may use: alone, and while two in-process workers share the cores.
#include <cstdio>

#include "core/base/error.h"
#include "ops/dispatch/threads.h"
using namespace troupe;

int main() try {
  std::printf("threads %d", ops::num_threads());
  {
    const internal::SharedCores shared(2);
    std::printf(" %d", ops::num_threads());
  }
  ops::set_num_threads(5);
  std::printf(" %d\n", ops::num_threads());
} catch (const Error& e) {
  std::printf("error %s\n", e.what());
  return 1;
}
