// Jobs that nothing better mends: where a worker is lost, the program begins again in its processes, from its
// newest checkpoint.
#include <signal.h>

#include <algorithm>
#include <map>
#include <memory>

#include "tests/process/far_site.h"

using Catch::Contains;
using troupe::testing::Folder;
using troupe::testing::Launcher;
using troupe::testing::pid_of;
using troupe::testing::Process;
using troupe::testing::program;

namespace {

struct Run : Launcher {
  Run(std::vector<std::string> flags, std::vector<std::string> variables)
      : Run(std::make_shared<Folder>(), std::move(flags), std::move(variables)) {}

 private:
  Run(std::shared_ptr<Folder> folder, std::vector<std::string> flags, std::vector<std::string> variables)
      : Launcher(with(std::move(flags), program("anew_job")),
                 with(std::move(variables), "CHECKPOINTS=" + (folder->path / "run").string())),
        folder_(std::move(folder)) {}
  static std::vector<std::string> with(std::vector<std::string> list, const std::string& last) {
    list.push_back(last);
    return list;
  }
  const std::shared_ptr<Folder> folder_;
};

// What it has come to, in order; of steps that were made again, once, if they came to the same.
std::vector<std::string> numbers(const Process& run) {
  auto all = run.lines("step ");
  for (auto& line : run.lines("final ")) all.push_back(line);
  std::vector<std::string> out;
  for (auto& line : all)
    if (std::ranges::find(out, line) == out.end()) out.push_back(line);
  return out;
}

std::vector<std::string> undisturbed(const std::string& steps) {
  static std::map<std::string, std::vector<std::string>> runs;
  auto& known = runs[steps];
  if (!known.empty()) return known;
  Run run({"-n", "4", "--elastic"}, {"STEPS=" + steps});
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  REQUIRE(code == 0);
  REQUIRE(run.lines("final ").size() == 1);
  return known = numbers(run);
}

void check_undisturbed(Process& run, const std::string& steps, size_t times) {
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 0);
  CHECK(numbers(run) == undisturbed(steps));
  CHECK(Process::count(run.errors, "the program begins again in its processes") == times);
}

}  // namespace

TEST_CASE("a program whose actors are of one copy goes on in its processes when they are lost", "[process]") {
  const auto [plan, times] = GENERATE(std::pair{"7:w2", 1}, std::pair{"0:w1", 1}, std::pair{"-1:w3", 1},
                                      std::pair{"3:w1;9:w4;19:w5", 3});
  Run run({"-n", "4", "--elastic", "--spares", GENERATE("0", "1")}, {std::string("PLAN=") + plan});
  check_undisturbed(run, "20", static_cast<size_t>(times));
}

TEST_CASE("a program goes back to its checkpoint when workers are killed from outside, or asked to end",
          "[process]") {
  const int signal = GENERATE(SIGKILL, SIGTERM);
  Run run({"-n", "4", "--elastic"}, {"STEPS=1200"});
  run.await("step ", 6);
  kill(pid_of(run, "w1"), signal);
  run.await_error("begins again in its processes");
  run.await("pid w4 ");
  run.await("step ", Process::count(run.output, "step ") + 5);
  kill(pid_of(run, "w4"), signal);
  check_undisturbed(run, "1200", 2);
}

TEST_CASE("a program begins again with fewer workers where that is enough", "[process]") {
  Run run({"-n", "4", "--elastic=2:4"}, {"PLAN=6:w3"});
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 0);
  CHECK(run.lines("final ").size() == 1);
  CHECK_THAT(run.errors, Contains("begins again in its processes, on w0, w1, w2"));
}

TEST_CASE("a program that loses workers and comes no further ends", "[process]") {
  std::string plan = "PLAN=-1:w3";
  for (int i = 4; i < 14; ++i) plan += ";-1:w" + std::to_string(i);
  Run run({"-n", "4", "--elastic"}, {plan});
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 4);
  CHECK(Process::count(run.errors, "begins again in its processes") == 10);
  CHECK_THAT(run.errors,
             Contains("w13 is lost: workers were lost 11 times without a checkpoint between them"));
}

TEST_CASE("a program does not begin again while something of its first beginning is there", "[process]") {
  Run run({"-n", "4", "--elastic"}, {"PLAN=7:w2", "HOLDS=1"});
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 4);
  CHECK_THAT(
      run.errors,
      Contains("cannot begin again in its processes: of what the driver's function made there is still "
               "Layer#0:"));
}
