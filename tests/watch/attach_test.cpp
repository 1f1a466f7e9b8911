// A guest of a job of real processes: the shell, attached to it.
#include <signal.h>

#include "tests/support/folder.h"
#include "tests/support/skip.h"
#include "tests/watch/watched_job.h"

using namespace troupe::testing;

namespace {

bool has_shell() { return Process({kTroupeCommand, "repl", "--help"}).exit_code() == 0; }

std::vector<std::string> attached(const WatchedJob& job, const std::string& code) {
  return {kTroupeCommand, "repl", "--attach", job.job, "-e", code};
}

// Actors of w1 of that type.
int64_t count(const WatchedJob& job, const std::string& type) {
  const auto report = nlohmann::json::parse(troupe_says({"ps", "--json", job.job}));
  int64_t count = 0;
  for (const auto& worker : report.at("workers"))
    if (worker.at("worker") == "w1")
      for (const auto& actor : worker.at("actors")) count += actor.at("type") == type;
  return count;
}

std::string logs(const WatchedJob& job) { return troupe_says({"logs", job.job}); }

}  // namespace

TEST_CASE("a guest reads what a job does") {
  if (!has_shell()) return skip_test("troupe was built without its shell");
  const Folder folder;
  WatchedJob job("train");
  Process reads(attached(job,
                         "ps() waits() print(#workers(), metrics('w1').actors)"
                         "print(trace(function() metrics('w2') end, '" +
                             (folder.path / "t.json").string() + "'):find(' events; wrote ') ~= nil)"));
  CHECK(reads.exit_code() == 0);
  INFO(reads.output << reads.errors);
  CHECK(reads.output.find("Half#0:1 on w1") != std::string::npos);
  CHECK(reads.output.find("3\t1\n") != std::string::npos);
}

TEST_CASE("a guest calls no actor of a job that was started without --control, and leaves it as it was") {
  if (!has_shell()) return skip_test("troupe was built without its shell");
  WatchedJob job("equal");
  for (const char* code : {"print(actor('Mill#0:1 on w1'):process())",
                           "spawn('Mill', 'w1', 4):process():get()", "lookup('w1/mill')"}) {
    Process shell(attached(job, code));
    CHECK(shell.exit_code() == 1);
    INFO(code << shell.output << shell.errors);
    CHECK(shell.errors.find("the job was started without --control of troupe run") != std::string::npos);
  }
  CHECK(count(job, "Mill") == 1);
  CHECK(logs(job).find("[control]") == std::string::npos);
}

TEST_CASE("a guest of a job for control calls actors and makes some, and its calls are lines of the log") {
  if (!has_shell()) return skip_test("troupe was built without its shell");
  WatchedJob job("equal", {"--control"});
  const std::string pid = job.run.line("pid ");
  Process calls(attached(job, R"(
    print("there " .. actor("Mill#0:2 on w2"):process():get())
    print("ground", spawn("Mill", "w1", 2):grind(ops.zeros({2, 2})))
    local mine <close> = claim({"w1"}, {share = true})
    local half = spawn("Half", "w1", 1, 4)
    local step <close> = context()
    step:backward(ops.sum(half(ops.zeros({2, 1}))))
    print("back on " .. #mine:workers())
  )"));
  const int code = calls.exit_code();
  INFO(calls.output << calls.errors << logs(job));
  CHECK(code == 0);
  CHECK(calls.output.find("there " + pid + "\n") != std::string::npos);
  CHECK(calls.output.find("back on 1\n") != std::string::npos);
  const std::string lines = logs(job);
  CHECK(lines.find("[control] call 1 of a guest, by guest-") != std::string::npos);
  CHECK(lines.find(": Mill::process on w2 (Mill#0:2)") != std::string::npos);
  CHECK(lines.find(": ref.spawn of Mill") != std::string::npos);
}

TEST_CASE("a guest that is killed leaves nothing") {
  if (!has_shell()) return skip_test("troupe was built without its shell");
  WatchedJob job("equal", {"--control"});
  Process shell(attached(job, R"(
    made = {}
    for i = 1, 5 do made[i] = spawn("Mill", "w1", 1) made[i]:process():get() end
    print("made")
    io.stdout:flush()
    while true do made[1]:process():get() end
  )"));
  shell.await("made\n");
  CHECK(count(job, "Mill") == 6);
  shell.signal(SIGKILL);
  while (count(job, "Mill") != 1) {
  }
}

TEST_CASE("jobs whose workers are in one process, or are not there, let no guest in") {
  if (!has_shell()) return skip_test("troupe was built without its shell");
  Process nobody({kTroupeCommand, "repl", "--attach", "no-such-job", "-e", "ps()"});
  CHECK(nobody.exit_code() == 1);
  CHECK(nobody.errors.find("no job of yours runs on this host whose name or program begins with "
                           "'no-such-job'") != std::string::npos);
  Process alone({program("planted"), "equal"});
  alone.await("planted\n");
  Process shell({kTroupeCommand, "repl", "--attach", "p" + alone.line("pid "), "-e", "ps()"});
  CHECK(shell.exit_code() == 1);
  CHECK(shell.errors.find("share the memory of one process, where no guest can come in") !=
        std::string::npos);
  alone.signal(SIGKILL);
}
