// `troupe run --max-restarts`: what is killed is started again, all of it, as often as it may be.
#include <signal.h>

#include <fstream>
#include <set>

#include "tests/process/launcher.h"
#include "tests/support/folder.h"

using Catch::Contains;
using troupe::testing::content;
using troupe::testing::Folder;
using troupe::testing::Launcher;
using troupe::testing::Process;
using troupe::testing::program;

namespace {

Launcher with_restarts(const std::string& restarts, const std::string& script,
                       std::vector<std::string> more = {}) {
  std::vector<std::string> all{"-n", "3", "--max-restarts", restarts};
  all.insert(all.end(), more.begin(), more.end());
  all.insert(all.end(), {"/bin/sh", "-c", script});
  return Launcher(all);
}
Launcher restarting(const std::string& restarts, const std::string& mode) {
  return Launcher({"-n", "3", "--max-restarts", restarts, program("restarting"), "--mode", mode});
}

// What Troupe's workers say to the launcher, said by a shell.
std::string says(const std::string& word) {
  return "printf " + word + " > /proc/self/fd/${TROUPE_LAUNCHER_PIPE%%:*}; ";
}

}  // namespace

TEST_CASE("a worker that is killed: all start again, as another job, until it goes well", "[process]") {
  auto job =
      with_restarts("3",
                    "echo start $TROUPE_RESTART; echo job $TROUPE_JOB $TROUPE_ADDRESS $TROUPE_TOKEN; "
                    "test $TROUPE_RESTART = 2 && exit 0; test $RANK = 1 && kill -9 $$; exec sleep 1000");
  CHECK(job.exit_code() == 0);
  CHECK(job.nothing_left());
  for (const char* start : {"start 0\n", "start 1\n"}) CHECK(Process::count(job.output, start) >= 1);
  CHECK(Process::count(job.output, "start 2\n") == 3);
  CHECK(Process::count(job.errors, "was killed by signal 9 (SIGKILL)\n") == 2);
  CHECK_THAT(job.errors, Contains("troupe run: all start again: restart 1 of 3\n") &&
                             Contains("troupe run: all start again: restart 2 of 3\n"));
  std::set<std::string> jobs;
  for (const auto& line : job.lines("[w1] job ")) jobs.insert(line);
  CHECK(jobs.size() == 3);
}

TEST_CASE("restarts without a checkpoint in between come to an end, with the last code", "[process]") {
  auto job = with_restarts("2", "test $RANK = 2 && kill -9 $$; exec sleep 1000");
  CHECK(job.exit_code() == 137);
  CHECK(job.nothing_left());
  CHECK(Process::count(job.errors, "all start again") == 2);
  CHECK(job.errors.ends_with(
      "troupe run: no restart is left: 2 without a checkpoint in between (--max-restarts)\n"));
}

TEST_CASE("a checkpoint that worker 0 tells of makes the count begin again", "[process]") {
  auto job = with_restarts("1", "test $TROUPE_RESTART = 4 && exit 0; test $RANK = 0 || exec sleep 1000; " +
                                    says("k") + "kill -9 $$");
  CHECK(job.exit_code() == 0);
  CHECK(Process::count(job.errors, "all start again: restart 1 of 1, from a checkpoint\n") == 4);
  CHECK(job.nothing_left());
}

TEST_CASE("errors, and what comes after the driver's end, are no reason to start again", "[process]") {
  const auto [script, code] =
      GENERATE(std::pair(std::string("test $RANK = 1 && exit 7; exec sleep 1000"), 7),
               std::pair(std::string("test $RANK = 1 && exit 1; exec sleep 1000"), 1),
               std::pair(std::string("test $RANK = 1 && exit 3; exec sleep 1000"), 3),
               std::pair(std::string("test $RANK = 1 && kill -TERM $$; exec sleep 1000"), 143),
               std::pair("test $RANK = 0 || exec sleep 1000; " + says("d") + "kill -9 $$", 137));
  auto job = with_restarts("3", script);
  INFO(script);
  CHECK(job.exit_code() == code);
  CHECK(job.nothing_left());
  CHECK(Process::count(job.errors, "start again") == 0);
  CHECK(Process::count(job.errors, "no restart is left") == 0);
}

TEST_CASE("a worker that lost another one is a reason, and so is the keeper's death", "[process]") {
  const std::string script =
      GENERATE(std::string("test $RANK = 1 && exit 4; exec sleep 1000"),
               std::string("test $RANK = 1 && kill -9 $(cut -d' ' -f5 /proc/$$/stat); exec sleep 1000"));
  auto job = with_restarts("1", "test $TROUPE_RESTART = 1 && exit 0; " + script);
  INFO(script);
  CHECK(job.exit_code() == 0);
  CHECK(job.nothing_left());
  CHECK(Process::count(job.errors, "all start again: restart 1 of 1\n") == 1);
}

TEST_CASE("Ctrl-C ends a job that was started again, and nothing starts after it", "[process]") {
  auto job = with_restarts("3", "test $TROUPE_RESTART = 1 && { echo ready; exec sleep 1000; }; kill -9 $$");
  job.await("ready", 3);
  job.signal(SIGINT);
  CHECK(job.exit_code() == 130);
  CHECK(job.nothing_left());
  CHECK(Process::count(job.errors, "start again") == 1);
}

TEST_CASE("log files go on where the attempt before ended", "[process]") {
  Folder folder;
  const std::string logs = (folder.path / "logs").string();
  auto job =
      with_restarts("1",
                    "echo start $TROUPE_RESTART; test $TROUPE_RESTART = 1 && exit 0; test $RANK = 1 && kill "
                    "-9 $$; exec sleep 1000",
                    {"--log-dir", logs});
  CHECK(job.exit_code() == 0);
  CHECK(content(logs + "/w1.log") == "start 0\nstart 1\n");
}

TEST_CASE("a worker or the driver is killed, or falls silent: another cluster comes together, and ends well",
          "[process]") {
  const std::string mode = GENERATE("worker", "silent", "driver", "thread");
  auto job = restarting("1", mode);
  INFO(mode);
  CHECK(job.exit_code() == 0);
  CHECK(job.nothing_left());
  CHECK(Process::count(job.errors, "all start again: restart 1 of 1\n") == 1);
  CHECK(Process::count(job.output, "the sum is 3\n") == 1);
}

TEST_CASE("a cluster that does not come together any more is started again, one that never did is not",
          "[process]") {
  auto again = restarting("2", "absent-later");
  CHECK(again.exit_code() == 0);
  CHECK(Process::count(again.errors, "start again") == 2);
  CHECK(Process::count(again.errors, "before it had joined the cluster") == 1);
  auto never = restarting("2", "absent");
  CHECK(never.exit_code() == 3);
  CHECK(Process::count(never.errors, "start again") == 0);
}

TEST_CASE("a driver that has ended is not run again, whoever is killed then", "[process]") {
  auto job = restarting("3", "after");
  CHECK(job.exit_code() != 0);
  CHECK(job.nothing_left());
  CHECK(Process::count(job.output, "the sum is 3\n") == 1);
  CHECK(Process::count(job.errors, "start again") == 0);
}

TEST_CASE("a rehearsal kills a program twice, and says that it survives or what it forgets", "[process]") {
  const auto rehearsal = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"-n", "3", "--rehearse"});
    return Launcher(arguments);
  };
  const std::string forgetful = program("forgetful");
  SECTION("nothing") {
    auto job = rehearsal({forgetful});
    CHECK(job.exit_code() == 0);
    CHECK(Process::count(job.errors, "all start again: restart 1 of 2, from a checkpoint\n") == 2);
    CHECK_THAT(job.errors, Contains("rehearsal: killed twice, it ends with the same bits: all ") &&
                               Contains(" tensors of step 12\n"));
    CHECK_THAT(job.output, !Contains("loss "));  // it ends within the loop
    CHECK(job.nothing_left());
  }
  SECTION("a driver's variable, and a member of an actor") {
    for (const char* what : {"variable", "member"}) {
      auto job = rehearsal({forgetful, "--forgets", what});
      INFO(what << "\n" << job.errors);
      CHECK(job.exit_code() == 5);
      CHECK_THAT(job.errors, Contains(" tensors of step 12 differ after kills: ") &&
                                 Contains("Shifted#0.0.weight") &&
                                 Contains("a driver's variable without a Keep"));
    }
  }
  SECTION("nothing would show") {
    auto job = rehearsal({forgetful, "--forgets", "everything"});
    CHECK(job.exit_code() == 5);
    CHECK_THAT(job.errors, Contains("two runs that nobody disturbs differ, too: "));
  }
  SECTION("too short") {
    auto job = rehearsal({forgetful, "--steps", "7"});
    CHECK(job.exit_code() == 2);
    CHECK_THAT(job.errors, Contains("the loop ends at step 7, and kills come at steps 6 and 9"));
  }
  SECTION("no job") {
    auto job = rehearsal({program("quickstart")});
    CHECK(job.exit_code() == 2);
    CHECK_THAT(job.errors, Contains("the program has made no checkpoint: has it a Job"));
  }
}

// Random kills (tests/soak/kills.py) are for the other ones.
TEST_CASE("examples survive a rehearsal, those without a cluster, too", "[process]") {
  const Folder folder;
  const std::string chart = (folder.path / "chart.svg").string(), text = (folder.path / "text").string();
  std::ofstream words(text);
  for (int i = 0; i < 600; ++i) words << i << " times " << i + 1 << " is " << i * i + i << ". ";
  words.close();
  const std::vector<std::vector<std::string>> examples{
      {"mnist_cnn", "--chart", chart},
      {"spirals", "--chart", chart},
      {"char_transformer", "--chart", chart, "--batch", "4", text},
      {"pinn", "--chart", chart},
      {"pipeline", "--chart", chart, "--batch", "32"},
      {"rnn_remote", "--chart", chart, "--batch", "4", "--hidden", "32", text},
      {"sharded", "--chart", chart, "--batch", "4", text},
      {"own_function"}};
  for (const auto& example : examples) {
    std::vector<std::string> command{"-n", example[0] == "own_function" ? "2" : "1", "--rehearse",
                                     program(example[0])};
    command.insert(command.end(), example.begin() + 1, example.end());
    Launcher job(command);
    INFO(example[0] << "\n" << job.errors);
    CHECK(job.exit_code() == 0);
    CHECK_THAT(job.errors, Contains("it ends with the same bits"));
    CHECK(job.nothing_left());
  }
}
