// What keeps a job of real processes waiting is named from outside, by the first line.
#include <signal.h>

#include "tests/watch/watched_job.h"

using namespace troupe::testing;

namespace {

size_t count(const std::string& text, const std::string& part) { return Process::count(text, part); }

}  // namespace

TEST_CASE("a worker that is stopped is named first, with its process") {
  WatchedJob job("stopped");
  const pid_t pid = std::stoi(job.run.line("pid "));
  REQUIRE(kill(pid, SIGSTOP) == 0);
  const std::string line = job.first_line("w2 does not answer");
  CHECK(line.find("its process " + std::to_string(pid) + " is stopped (kill -CONT " + std::to_string(pid)) !=
        std::string::npos);
  REQUIRE(kill(pid, SIGCONT) == 0);
}

TEST_CASE("an actor that sleeps is named with all that wait for it, by way of others too") {
  WatchedJob job("relay");
  // The first nap, the relay's caller, the relay, and 20 in the queue.
  CHECK(job.first_line("has been running Sleeper::nap for", 23).starts_with("Sleeper#0:"));
  CHECK(job.waits().size() == 1);
  const std::string shown = troupe_says({"waits", job.job});
  CHECK(shown.find(": 23 calls wait, the oldest since ") != std::string::npos);
  CHECK(shown.find("\n    w0 waits for Sleeper::nap on w2\n") != std::string::npos);
}

TEST_CASE("a step that takes much longer than those before is said without a tool, and kept for one") {
  WatchedJob job("late");
  job.run.await_error("[step] step 20 has taken ");
  job.run.await_error("has been running Sleeper::nap for");
  const std::string shown = troupe_says({"logs", job.job});
  CHECK(shown.find("[w0] ") != std::string::npos);
  CHECK(shown.find("warning: [step] step 20 has taken ") != std::string::npos);
}

TEST_CASE("SIGUSR1 has a worker write to its log what everybody waits for") {
  WatchedJob job("relay");
  (void)job.first_line("has been running Sleeper::nap for", 23);
  const auto report = nlohmann::json::parse(troupe_says({"ps", "--json", job.job}));
  REQUIRE(kill(report.at("workers")[1].at("pid").get<pid_t>(), SIGUSR1) == 0);
  job.run.await_error("[waits] Sleeper#0:");
}

TEST_CASE("actors that wait for each other in a circle are called that") {
  WatchedJob job("ring");
  const std::string line = job.first_line("actors wait for each other in a circle: ");
  CHECK(count(line, "Peer#0:1 ") == 2);
  CHECK(count(line, "Peer#0:2 ") == 1);
}

TEST_CASE("a server that waits for a trainer says for which") {
  WatchedJob job("server");
  CHECK(job.first_line("missing is trainer").find("on w2") != std::string::npos);
}

TEST_CASE("a rank that has not called its group's operation is named") {
  WatchedJob job("group");
  const std::string line = job.first_line("has not called [all_reduce]");
  CHECK(line.starts_with("rank 2 ("));
  CHECK(line.find("of tag \"planted\"") != std::string::npos);
}

TEST_CASE("a full queue is named with what its actor does") {
  WatchedJob job("full");
  const std::string line = job.first_line("has been running Sleeper::nap for");
  CHECK(line.starts_with("Sleeper#0:"));
}
