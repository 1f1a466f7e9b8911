#include "core/base/thread.h"

#include <sched.h>

#include <algorithm>
#include <latch>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace troupe {

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));  // more than 1024 cores
}

void throw_no_thread(const char* part, const std::system_error& why) {
  throw_error(
      ErrorKind::failed,
      "[" + std::string(part) + "] cannot start a thread: " + why.code().message() +
          "; each takes 8 MiB of address space, or what `ulimit -s` says. See `ulimit -v`, `ulimit -u` "
          "and the limits of the container; fewer threads: ClusterOptions::threads");
}

void rehearse_threads(const char* part, int count) {
  std::latch over(1);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  const auto end = [&] {
    over.count_down();
    for (std::thread& t : threads) t.join();
  };
  try {
    while (std::ssize(threads) < count) threads.push_back(start_thread(part, [&] { over.wait(); }));
  } catch (...) {
    end();
    throw;
  }
  end();
}

}  // namespace troupe
