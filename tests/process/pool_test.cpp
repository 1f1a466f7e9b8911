// Pools whose workers are killed: every call comes to its end, and the job around them goes on.
#include <signal.h>

#include <fstream>

#include "core/base/generator.h"
#include "data/checkpoint/checkpoint_files.h"
#include "tests/process/far_site.h"
#include "tests/support/eventually.h"

using Catch::Contains;
using troupe::testing::Folder;
using troupe::testing::Launcher;
using troupe::testing::pid_of;
using troupe::testing::Process;
using troupe::testing::program;

namespace fs = std::filesystem;

namespace {

std::string content(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> command(std::vector<std::string> flags) {
  flags.push_back(program("pool_job"));
  return flags;
}

// The process whose command line has both.
pid_t titled(const std::string& title, const std::string& argument) {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string line = content(entry.path() / "cmdline");
    if (line.find(title) != std::string::npos && line.find(argument) != std::string::npos)
      return std::stoi(entry.path().filename());
  }
  FAIL("no process is called " << title);
  return 0;
}

}  // namespace

TEST_CASE("a pool whose workers are killed does every task, and knows what on_start said", "[process]") {
  troupe::Generator random(static_cast<uint64_t>(GENERATE(range(0, 4))));
  Launcher run(command({"-n", "4", "--keep-going"}), {"STEPS=60"});
  std::vector<std::string> there{"w1", "w2", "w3"};
  for (const size_t step : {3, 20}) {
    run.await("step ", step);
    const size_t at = random.below(there.size());
    kill(pid_of(run, there[at]), SIGKILL);
    there.erase(there.begin() + static_cast<std::ptrdiff_t>(at));
  }
  run.await("restarts ");
  INFO(run.output << run.errors);
  CHECK(run.lines("step ").size() == 60);
  CHECK(run.lines("restarts ").back() != "restarts 0");
}

TEST_CASE("a job whose pool loses members goes on, with its checkpoints and its replicas", "[process]") {
  const Folder folder;
  const std::string where = "CHECKPOINTS=" + (folder.path / "run").string();
  Launcher run(command({"-n", "5", "--elastic"}), {where, "LEARN=1", "STEPS=60"});
  run.await("step ", 5);
  kill(pid_of(run, "w4"), SIGKILL);  // of the pool
  run.await("step ", 25);
  kill(pid_of(run, "w3"), SIGKILL);  // the other one
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 0);
  CHECK(run.lines("step ").size() == 60);
  CHECK(troupe::datasets::committed_steps((folder.path / "run").string()).back() == 60);
  Launcher more(command({"-n", "5", "--elastic"}), {where, "LEARN=1", "STEPS=64"});
  const int second = more.exit_code();
  INFO(more.output << more.errors);
  CHECK(second == 0);
  CHECK(more.lines("step ").size() == 4);
}

TEST_CASE("a pool whose members cannot be made says why, and how often it tried", "[process]") {
  Launcher run(command({"-n", "2"}), {"NOT_ON=w1"});
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 1);
  CHECK_THAT(run.errors, Contains("more than 5 losses within 60 s (PoolOptions::restart)") &&
                             Contains("Roller[0] on w1") && Contains("a Roller of w1 is not made"));
}

TEST_CASE("a language model that learns from rollouts has the same rewards when workers are killed",
          "[process]") {
  const Folder folder;
  const auto start = [&](const std::string& name) {
    return std::make_unique<Launcher>(std::vector<std::string>{
        "-n", "5", "--elastic", program("grpo"), "--steps", "30", "--chart", (folder.path / name).string(),
        "--checkpoint", (folder.path / (name + "s")).string(), "--checkpoint-every", "4"});
  };
  const auto rewards = [](Process& run) {
    const int code = run.exit_code();
    INFO(run.output << run.errors);
    REQUIRE(code == 0);
    return run.output.substr(run.output.rfind("reward "), 12);
  };
  auto quiet = start("quiet.svg");
  const std::string undisturbed = rewards(*quiet);
  auto run = start("killed.svg");
  const auto newest = [&] {
    const auto steps = fs::exists(folder.path / "killed.svgs")
                           ? troupe::datasets::committed_steps((folder.path / "killed.svgs").string())
                           : std::vector<int64_t>();
    return steps.empty() ? -1 : steps.back();
  };
  int64_t step = 1;
  for (const std::string worker : {"w1", "w4", "w2", "w3"}) {  // who learns, and who writes answers
    REQUIRE(troupe::testing::eventually([&] { return newest() >= step; }));
    if (newest() < 30) kill(titled("[" + worker + " of 5", "killed.svg"), SIGKILL);
    step = std::min<int64_t>(newest() + 1, 30);
  }
  CHECK(rewards(*run) == undisturbed);
  CHECK(content(folder.path / "killed.svg") == content(folder.path / "quiet.svg"));
  CHECK_THAT(run->errors, Contains("w1 is lost: w5 takes its place") && Contains("on w4"));
}
