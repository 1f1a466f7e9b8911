#include "core/base/thread.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <latch>
#include <optional>
#include <string>
#include <vector>

#include "core/base/cpu_quota.h"
#include "core/base/error.h"

namespace troupe {

namespace {

std::optional<std::string> text_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) return {};
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int cores_of_mask() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());  // more than 1024 cores
}

}  // namespace

int usable_cores() {
  const int most = cores_of_mask();
  const double quota = std::min<double>(cpu_quota(text_of).value_or(most), most);
  return std::max(1, static_cast<int>(std::ceil(quota)));
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
