// Ctrl-C and SIGTERM while a job's loop goes on: the step ends, a checkpoint is made, and the next run goes
// on from it.
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "data/checkpoint/checkpoint_files.h"
#include "tests/process/far_site.h"
#include "tests/support/eventually.h"

using Catch::Contains;
using troupe::testing::FarSite;
using troupe::testing::Folder;
using troupe::testing::Launcher;
using troupe::testing::Process;
using troupe::testing::program;
using troupe::testing::Site;

namespace {

struct Stopping {
  const Folder folder;
  const std::string run = (folder.path / "run").string();

  std::vector<std::string> command(std::vector<std::string> more, const std::string& every = "1000") const {
    more.insert(more.begin(),
                {program("stopping"), "--checkpoint", run, "--resume", "--checkpoint-every", every});
    return more;
  }
  std::vector<std::string> launched(std::vector<std::string> flags, std::vector<std::string> more) const {
    for (auto& part : command(std::move(more))) flags.push_back(std::move(part));
    return flags;
  }
  int64_t newest() const {
    const auto steps = troupe::datasets::committed_steps(run);
    return steps.empty() ? -1 : steps.back();
  }
  // Each step that began has ended, and is in the checkpoint; it goes on from there.
  void went_on(const Process& job) const {
    INFO(job.output << job.errors);
    const auto begun = Process::count(job.output, " begins\n");
    CHECK(Process::count(job.output, "counted ") == begun);
    CHECK(newest() == static_cast<int64_t>(begun));
    CHECK(Process::count(job.output, "the loop is over") == 0);
    CHECK_THAT(job.errors, Contains("has a checkpoint of step " + std::to_string(begun) + ": the same"));
  }
};

}  // namespace

TEST_CASE(
    "SIGTERM and the first Ctrl-C let a step end that takes longer than the grace, save it, and end the job",
    "[process]") {
  const auto [number, code] = GENERATE(std::pair(SIGINT, 130), std::pair(SIGTERM, 143));
  const Stopping stopping;
  Launcher job(stopping.launched({"-n", "3", "--grace", "0.2"}, {"--ms", "700"}));
  job.await("step 2 begins");
  job.signal(number);
  CHECK(job.exit_code() == code);
  CHECK(job.nothing_left());
  CHECK_THAT(job.errors, Contains(": the program comes to its end by itself (once more ends it at once)"));
  CHECK_THAT(job.errors, !Contains("did not end within") && !Contains("error"));
  CHECK_THAT(job.output, Contains("counted 3, the last one"));
  stopping.went_on(job);

  Launcher again(stopping.launched({"-n", "2"}, {"--ms", "1", "--steps", "6"}));
  CHECK(again.exit_code() == 0);
  CHECK_THAT(again.output, Contains("step 3 begins\ncounted 4\n") && Contains("counted 6\nthe loop is over"));
}

TEST_CASE("a second Ctrl-C ends a job at once that waits for its step", "[process]") {
  const Stopping stopping;
  Launcher job(stopping.launched({"-n", "2"}, {"--ms", "1000000"}));
  job.await("step 0 begins");
  job.signal(SIGINT);
  job.await_error("[launch]");
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  job.signal(SIGINT);
  CHECK(job.exit_code() == 130);
  CHECK(job.nothing_left());
  CHECK(stopping.newest() == 0);
}

TEST_CASE("a signal to one worker, as to a pod that is moved, ends the whole job with a checkpoint",
          "[process]") {
  const Stopping stopping;
  Launcher job(stopping.launched({"-n", "3"}, {"--ms", "100"}));
  job.await("step 1 begins");
  const pid_t worker = std::atoi(job.line("w1 has pid ").c_str());
  REQUIRE(kill(worker, SIGTERM) == 0);
  CHECK(job.exit_code() == 143);
  CHECK(job.nothing_left());
  CHECK_THAT(job.errors, Contains("w0: [launch] SIGTERM at w1: "));
  stopping.went_on(job);
}

TEST_CASE("a batch system that tells every process, in its way, gets a checkpoint", "[process]") {
  const Stopping stopping;
  Launcher job(stopping.launched({"-n", "2"}, {"--ms", "500"}));
  job.await("step 1 begins");
  const pid_t worker = std::atoi(job.line("w1 has pid ").c_str());
  REQUIRE(kill(worker, SIGTERM) == 0);
  job.signal(SIGTERM);
  kill(worker, SIGTERM);
  CHECK(job.exit_code() == 143);
  stopping.went_on(job);
}

TEST_CASE("a signal to an agent of -H ends the job as one to the launcher does, behind its step",
          "[process]") {
  const std::string host = GENERATE("east", "west");
  const auto [number, code] = GENERATE(std::pair(SIGINT, 130), std::pair(SIGTERM, 143));
  const Stopping stopping;
  const FarSite site;
  auto flags = site.flags("east:1,west:2");
  flags.insert(flags.end(), {"--grace", "0.2"});
  Launcher job(stopping.launched(flags, {"--ms", "700"}));
  job.await("step 1 begins");
  REQUIRE(kill(site.agent(host), number) == 0);
  CHECK(job.exit_code() == code);
  job.await_nothing_left();
  CHECK_THAT(job.errors, Contains("troupe run: " + host + " was told to end (SIG") &&
                             !Contains("did not end within") && !Contains("was lost"));
  stopping.went_on(job);
}

TEST_CASE("agents, what leads to them, and the launcher may all be told: that is one request", "[process]") {
  const Stopping stopping;
  const FarSite site;
  Launcher job(stopping.launched(site.flags("east:1,west:1"), {"--ms", "500"}));
  job.await("step 1 begins");
  const bool launcher_first = GENERATE(true, false);
  if (launcher_first) job.signal(SIGTERM);
  for (const char* host : {"west", "east"})
    for (const pid_t pid : {site.ssh(host), site.agent(host)}) REQUIRE(kill(pid, SIGTERM) == 0);
  CHECK(job.exit_code() == 143);
  job.await_nothing_left();
  stopping.went_on(job);
}

TEST_CASE("a second signal to an agent ends the job at once", "[process]") {
  const Stopping stopping;
  const FarSite site;
  Launcher job(stopping.launched(site.flags("east:1,west:1"), {"--ms", "1000000"}));
  job.await("step 0 begins");
  REQUIRE(kill(site.agent("west"), SIGTERM) == 0);
  job.await_error("[launch]");
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));  // behind what counts as the same request
  REQUIRE(kill(site.agent("west"), SIGTERM) == 0);
  CHECK(job.exit_code() == 143);
  job.await_nothing_left();
  CHECK(stopping.newest() == 0);
}

TEST_CASE("a launcher of one of several hosts waits, when it is told to end, for the step of the whole job",
          "[process]") {
  const Stopping stopping;
  const std::string port = std::to_string(troupe::testing::free_port());
  const auto share = [&](const std::string& node) {
    return stopping.launched({"-n", "1", "--nnodes", "2", "--node-rank", node, "--master-addr", "127.0.0.1",
                              "--master-port", port, "--grace", "0.2"},
                             {"--ms", "700"});
  };
  const std::vector<std::string> token{"TROUPE_TOKEN=" + troupe::testing::kToken};
  Launcher first(share("0"), token), second(share("1"), token);
  first.await("step 1 begins");
  second.signal(SIGTERM);
  CHECK(first.exit_code() == 143);
  CHECK(second.exit_code() == 143);
  CHECK_THAT(second.errors, !Contains("did not end within"));
  stopping.went_on(first);
}

TEST_CASE("a job in one process, with a cluster or without, ends with a checkpoint, too", "[process]") {
  const std::string mode = GENERATE("job", "alone");
  const auto [number, code] = GENERATE(std::pair(SIGINT, 130), std::pair(SIGTERM, 143));
  const Stopping stopping;
  Process job(stopping.command({"--mode", mode}));
  job.await("step 2 begins");
  job.signal(number);
  CHECK(job.exit_code() == code);
  stopping.went_on(job);
  Process again(stopping.command({"--mode", mode, "--ms", "0", "--steps", "9"}));
  CHECK(again.exit_code() == 0);
  CHECK_THAT(again.output, Contains("counted 9\nthe loop is over"));
}

TEST_CASE(
    "processes that are started by hand, as on several hosts with one shared folder, go on from it together",
    "[process]") {
  const Stopping stopping;
  {
    const Site site;
    const auto command = stopping.command({"--ms", "20"}, "1");
    Process w0(command, site.of(0, 2)), w1(command, site.of(1, 2));
    w0.await("step 2 begins");
    REQUIRE(troupe::testing::eventually([&] { return stopping.newest() >= 1; }));
    w1.signal(SIGKILL);
    CHECK(w0.exit_code() == 4);
    CHECK(w1.exit_code() == 137);
  }
  const int64_t from = stopping.newest();
  CHECK(from > 0);
  const Site site;
  const auto command = stopping.command({"--ms", "1", "--steps", std::to_string(from + 4)}, "1");
  Process w0(command, site.of(0, 2)), w1(command, site.of(1, 2));
  CHECK(w0.exit_code() == 0);
  CHECK(w1.exit_code() == 0);
  CHECK_THAT(w0.output, Contains(fmt::format("step {} begins\ncounted {}\n", from, from + 1)) &&
                            Contains(fmt::format("counted {}\nthe loop is over", from + 4)));
  CHECK(Process::count(w0.output, "begins") == 4);
  CHECK(stopping.newest() == from + 4);
}

TEST_CASE("a program that asks leaves its own loop, and code behind it runs", "[process]") {
  const Stopping stopping;
  Launcher job({"-n", "2", program("stopping"), "--mode", "own"});
  job.await("counted 2");
  job.signal(SIGTERM);
  CHECK(job.exit_code() == 143);
  CHECK(job.nothing_left());
  CHECK_THAT(job.output, Contains("the loop is over"));
}

TEST_CASE("a job without a folder is interrupted at once", "[process]") {
  Launcher job({"-n", "2", program("stopping"), "--ms", "3000"});
  job.await("step 0 begins");
  job.signal(SIGTERM);
  CHECK(job.exit_code() == 143);
  CHECK_THAT(job.output, !Contains("counted"));
  CHECK_THAT(job.errors,
             Contains("w0: [job] SIGTERM ends the loop, and nothing of it is saved: the job has no "
                      "folder of checkpoints (--checkpoint DIR)\n"));
}

TEST_CASE("a job without a folder and without launch() says the same, and is killed by the signal",
          "[process]") {
  const auto [number, name] = GENERATE(std::pair(SIGINT, "Ctrl-C"), std::pair(SIGTERM, "SIGTERM"));
  Process job({program("stopping"), "--mode", "alone", "--ms", "3000"});
  job.await("step 0 begins");
  job.signal(number);
  CHECK(job.exit_code() == 128 + number);
  CHECK(job.errors == std::string("[job] ") + name +
                          " ends the loop, and nothing of it is saved: the job has no folder of checkpoints "
                          "(--checkpoint DIR)\n");
}

// ---- scripts

namespace {

constexpr const char* kScript = R"(
  local function say(...) print(...); io.stdout:flush() end
  local slow = spawn("Slow", "w1")
  say("w1 has pid " .. slow:pid():get())
  local curve = keep{counted = {}}
  local training = job()
  for step in training:steps(steps) do
    say("step " .. step .. " begins")
    curve.counted[#curve.counted + 1] = slow:count(ms):get()
    say("counted " .. curve.counted[#curve.counted] .. (training:stopping() and ", the last one" or ""))
    assert(#curve.counted == step + 1)
    if step == leave then break end
  end
  say("the loop is over")
)";

// The shell, with workers of a program.
std::vector<std::string> scripted(const Stopping& stopping, const std::string& before,
                                  const std::string& behind = "") {
  const auto script = stopping.folder.file("script.lua", before + kScript + behind);
  return {troupe::testing::kTroupeCommand,
          "repl",
          "-n",
          "2",
          "--checkpoint",
          stopping.run,
          "--resume",
          "--checkpoint-every",
          "1000",
          program("stopping"),
          "--checkpoint",
          stopping.run,
          script};
}

bool no_shell() {
  Process shell({troupe::testing::kTroupeCommand, "repl", "--help"});
  if (shell.exit_code() == 0) return false;
  troupe::testing::skip_test("troupe was built without its shell");
  return true;
}

}  // namespace

TEST_CASE("SIGTERM to a worker of a script, to its shell, or Ctrl-C ends its job behind the step",
          "[process]") {
  if (no_shell()) return;
  const auto [number, code] = GENERATE(std::pair(SIGINT, 130), std::pair(SIGTERM, 143));
  const bool worker = GENERATE(true, false);
  const Stopping stopping;
  // What a script catches does not keep it.
  Process job(scripted(stopping, "steps, ms = 1000, 500; pcall(function()", "end); print('goes on')"));
  job.await("step 1 begins");
  REQUIRE(kill(worker ? std::atoi(job.line("w1 has pid ").c_str()) : job.pid(), number) == 0);
  CHECK(job.exit_code() == code);
  job.await_nothing_left();
  CHECK_THAT(job.output, Contains(", the last one") && !Contains("goes on"));
  CHECK_THAT(job.errors,
             Contains(worker ? " at w1: the program comes to its end by itself" : "asked to end: ") &&
                 !Contains("rror"));
  stopping.went_on(job);
  const auto from = static_cast<int>(stopping.newest());
  Process again(scripted(stopping, fmt::format("steps, ms = {}, 1\n", from + 3)));
  CHECK(again.exit_code() == 0);
  CHECK_THAT(again.output, Contains(fmt::format("step {} begins\ncounted {}\n", from, from + 1)) &&
                               Contains(fmt::format("counted {}\nthe loop is over", from + 3)));
}

TEST_CASE("a script without a job loses a worker that is told to end, and the worker ends well",
          "[process]") {
  if (no_shell()) return;
  const Stopping stopping;
  // A loop that a break has left is none any more.
  Process job(scripted(stopping, "steps, ms, leave = 5, 1, 0",
                       "while true do spawn('Slow', 'w1'):count(1):get() end"));
  job.await("the loop is over");
  REQUIRE(kill(std::atoi(job.line("w1 has pid ").c_str()), SIGTERM) == 0);
  CHECK(job.exit_code() == 4);
  job.await_nothing_left();
  CHECK_THAT(job.errors, Contains("worker w1 ") && !Contains("comes to its end by itself"));
}

TEST_CASE("a script whose job has no folder says, when it is interrupted, that nothing is saved",
          "[process]") {
  if (no_shell()) return;
  const auto [number, name] = GENERATE(std::pair(SIGINT, "Ctrl-C"), std::pair(SIGTERM, "SIGTERM"));
  Process job({troupe::testing::kTroupeCommand, "repl", "-e",
               "for step in job():steps(2) do print('begins'); io.stdout:flush(); while true do end end"});
  job.await("begins");
  job.signal(number);
  CHECK(job.exit_code() == 128 + number);
  CHECK_THAT(job.errors, Contains(std::string("[job] ") + name +
                                  " ends the loop, and nothing of it is saved: the job has no folder of "
                                  "checkpoints (--checkpoint DIR)\n"));
}

TEST_CASE("calls that a script does not wait for, to a worker that is lost, end it with the code of that",
          "[process]") {
  if (no_shell()) return;
  Process job(
      {troupe::testing::kTroupeCommand, "repl", "-n", "2", "-e",
       "local slow = spawn('Slow', 'w1'); local pid = slow:pid():get(); forgotten = slow:count(1000000); "
       "print('pid ' .. pid); io.stdout:flush(); while not forgotten:ready() do end",
       program("stopping")});
  job.await("pid ");
  REQUIRE(kill(std::atoi(job.line("pid ").c_str()), SIGKILL) == 0);
  CHECK(job.exit_code() == 4);
  job.await_nothing_left();
}
