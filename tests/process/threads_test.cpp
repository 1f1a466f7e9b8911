// How many threads an operator may use: the cores of the process, shared by the workers of the host.
#include <algorithm>

#include "core/base/thread.h"
#include "tests/process/launcher.h"

using namespace troupe::testing;

namespace {

std::string said(const std::vector<std::string>& variables) {
  Process p({program("threads")}, variables);
  p.exit_code();
  return p.output;
}

std::string line(int alone, int shared) {
  return "threads " + std::to_string(alone) + " " + std::to_string(shared) + " 5\n";
}

TEST_CASE("threads: the cores, divided by the workers of the host and of the process") {
  const int n = troupe::usable_cores();
  CHECK(said({}) == line(n, std::max(1, n / 2)));
  CHECK(said({"LOCAL_WORLD_SIZE=2"}) == line(std::max(1, n / 2), std::max(1, n / 4)));
  CHECK(said({"LOCAL_WORLD_SIZE=1000"}) == line(1, 1));
}

TEST_CASE("threads: TROUPE_NUM_THREADS decides, and a wrong one is an error") {
  CHECK(said({"TROUPE_NUM_THREADS=3", "LOCAL_WORLD_SIZE=2"}) == line(3, 3));
  CHECK(said({"TROUPE_NUM_THREADS=two"}) ==
        "error [threads] TROUPE_NUM_THREADS is \"two\", expected a number from 1 to 1024\n");
  CHECK(said({"TROUPE_NUM_THREADS=0"}) == "error [threads] TROUPE_NUM_THREADS is 0, expected 1 to 1024\n");
  CHECK(said({"LOCAL_WORLD_SIZE=0"}) == "error [threads] LOCAL_WORLD_SIZE is 0, expected 1 to 1024\n");
}

TEST_CASE("threads: troupe run divides the cores among its workers") {
  const int n = troupe::usable_cores();
  Launcher job({"-n", "2", program("threads")});
  CHECK(job.exit_code() == 0);
  const std::string expected = line(std::max(1, n / 2), std::max(1, n / 4));
  INFO(job.output << job.errors);
  CHECK(Process::count(job.output, expected) == 2);
}

}  // namespace
