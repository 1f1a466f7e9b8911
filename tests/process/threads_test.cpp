// How many threads an operator may use: the cores of the process, shared by the workers of the host.
#include <algorithm>
#include <memory>

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

TEST_CASE("threads: where no launcher says how many workers this host has, they count themselves") {
  const std::string at = "TROUPE_ADDRESS=unix:@troupe-threads-" + std::to_string(getpid()),
                    token = "TROUPE_TOKEN=0123456789abcdef";
  const auto start = [&](const std::string& rank) {
    return std::make_unique<Process>(std::vector<std::string>{program("endings"), "--mode", "threads"},
                                     std::vector<std::string>{"RANK=" + rank, "WORLD_SIZE=2", at, token});
  };
  const auto driver = start("0"), worker = start("1");
  CHECK(worker->exit_code() == 0);
  CHECK(driver->exit_code() == 0);
  CHECK(driver->output == "threads " + std::to_string(std::max(1, troupe::usable_cores() / 2)) + "\n");
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
