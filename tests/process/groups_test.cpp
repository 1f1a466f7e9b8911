// Groups of processes.
#include <memory>
#include <string>
#include <vector>

#include "tests/process/launcher.h"
#include "tests/support/sanitized.h"

using namespace troupe::testing;

namespace {

// Four processes of a program, of which the last is to be killed. (Without a launcher, which would end the
// others, too.) What the first has said.
std::unique_ptr<Process> four(std::vector<std::string> command) {
  command[0] = program(command[0]);
  const auto member = [&](int rank) {
    return std::vector<std::string>{"TROUPE_RANK=" + std::to_string(rank), "TROUPE_WORLD_SIZE=4",
                                    "TROUPE_ADDRESS=unix:@troupe-groups-" + std::to_string(getpid()),
                                    "TROUPE_TOKEN=a token for the tests of groups"};
  };
  auto first = std::make_unique<Process>(command, member(0));
  std::vector<std::unique_ptr<Process>> others;
  for (int rank = 1; rank < 4; ++rank) others.push_back(std::make_unique<Process>(command, member(rank)));
  const int code = first->exit_code();
  INFO(command.back() << ": " << first->output << first->errors);
  CHECK(code == 0);
  for (int rank = 1; rank < 4; ++rank)
    CHECK(others[static_cast<size_t>(rank - 1)]->exit_code() == (rank == 3 ? 137 : 0));
  return first;
}

}  // namespace

TEST_CASE("processes sum tensors, and one that is killed is named, and the others form a group",
          "[process]") {
  const auto job = four({"groups"});
  INFO(job->output << job->errors);
  CHECK(job->lines("wrong").empty());
  CHECK(job->lines("small sums went by memory").size() == 4);
  CHECK(job->lines("disconnected names w3").size() == 3);
  CHECK(job->lines("of the others 6").size() == 3);
  CHECK(job->lines("left 0").size() == 3);
}

TEST_CASE("processes do small operations of every kind by memory, with the errors and the order of messages",
          "[process]") {
  const std::string processes = GENERATE("2", "4");
  Launcher job({"-n", processes, program("groups_small")});
  CHECK(job.exit_code() == 0);
  INFO(job.output << job.errors);
  CHECK(job.lines("wrong").empty());
  CHECK(job.lines("by memory: ").size() == 6);
  CHECK(job.lines("it gave way").size() == 1);
  CHECK(job.lines("left 0").size() == std::stoul(processes));
}

TEST_CASE("processes that the system gives no memory to share do the same by messages", "[process]") {
  // No memory file of any size, none as large as an arena, and no addresses for one.
  const std::string limit = GENERATE("ulimit -f 0", "ulimit -f 100000", "ulimit -v 3000000");
  if (kSanitized && limit.find("-v") != std::string::npos) return;  // its own memory takes more addresses
  Process job({"/bin/sh", "-c", limit + "; exec " + kTroupeCommand + " run -n 2 " + program("groups_small")});
  CHECK(job.exit_code() == 0);
  INFO(limit << ": " << job.output << job.errors);
  CHECK(job.lines("wrong").empty());
  CHECK(job.lines("by memory: ").empty());
  CHECK(job.lines("left 0").size() == 2);
}

TEST_CASE("memory that processes share is no part of /dev/shm, which may be full", "[process]") {
  const std::string full = "mount -t tmpfs -o size=4k none /dev/shm && cat /dev/zero > /dev/shm/full; ";
  Process job({"/bin/sh", "-c",
               "unshare -m true 2>/dev/null || { echo no namespaces; exit; }; exec unshare -m /bin/sh -c '" +
                   full + "exec " + kTroupeCommand + " run -n 2 " + program("groups_small") + "'"});
  CHECK(job.exit_code() == 0);
  INFO(job.output << job.errors);
  if (!job.lines("no namespaces").empty()) return;  // they are made by root
  CHECK(job.lines("wrong").empty());
  CHECK(job.lines("by memory: ").size() == 6);
  CHECK(job.lines("left 0").size() == 2);
}

TEST_CASE("a process that is killed within a large sum leaves the others nothing of it, and they go on",
          "[process]") {
  const std::string us = GENERATE("0", "7000", "31000", "90000");
  const auto job = four({"group_killed", "--after", us});
  INFO(us << ": " << job->output << job->errors);
  CHECK(job->lines("disconnected names w3").size() == 3);
  CHECK(job->lines("of the others 6.000").size() == 3);
  CHECK(job->lines("nothing left").size() == 3);
}

TEST_CASE(
    "a process that is killed among small sums by memory leaves the others nothing of them, and they go on",
    "[process]") {
  const std::string us = GENERATE("0", "3000", "50000", "150000");
  const auto job = four({"group_killed", "--after", us, "--elements", "1000"});
  INFO(us << ": " << job->output << job->errors);
  CHECK(job->lines("disconnected names w3").size() == 3);
  CHECK(job->lines("of the others 6.000").size() == 3);
  CHECK(job->lines("nothing left").size() == 3);
}

TEST_CASE("a process that is stopped within a large sum is given up, and nothing is left once it is killed",
          "[process]") {
  const auto job = four({"group_killed", "--after", "20000", "--stop"});
  INFO(job->output << job->errors);
  CHECK(job->lines("disconnected names w3").size() == 3);
  CHECK(job->lines("of the others 6.000").size() == 6);
  CHECK(job->lines("nothing left").size() == 3);
}
