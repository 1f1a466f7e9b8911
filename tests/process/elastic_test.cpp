// Jobs whose workers are killed, come and leave: they go on in place, with the bits of a run that nobody
// disturbed.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "core/base/generator.h"
#include "data/checkpoint/checkpoint_files.h"
#include "tests/process/far_site.h"

using Catch::Contains;
using troupe::testing::content;
using troupe::testing::Folder;
using troupe::testing::free_port;
using troupe::testing::kTroupeCommand;
using troupe::testing::Launcher;
using troupe::testing::pid_of;
using troupe::testing::Process;
using troupe::testing::program;

namespace {

std::vector<std::string> command(std::vector<std::string> flags) {
  flags.push_back(program("elastic_job"));
  return flags;
}

// What a run has printed that others are to print, too.
std::vector<std::string> numbers(const Process& run) {
  auto all = run.lines("step ");
  for (auto& line : run.lines("final ")) all.push_back(line);
  return all;
}

// "mesh", "chunks": pipelines, on four workers besides the driver's.
std::vector<std::string> flags(const std::string& shard) {
  return {"-n", shard == "mesh" || shard == "chunks" ? "5" : "4", "--elastic"};
}
std::string variable_of(const std::string& shard) {
  return shard == "mesh" ? "MESH=1" : shard == "chunks" ? "MESH=2" : "SHARD=" + shard;
}

const std::vector<std::string>& undisturbed(const std::string& shard = "none") {
  static std::map<std::string, std::vector<std::string>> known;
  auto& all = known[shard];
  if (!all.empty()) return all;
  Launcher run(command(flags(shard)), {variable_of(shard)});
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  REQUIRE(code == 0);
  REQUIRE(run.lines("final ").size() == 1);
  return all = numbers(run);
}

void check_undisturbed(Process& run, const std::string& shard = "none") {
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 0);
  CHECK(numbers(run) == undisturbed(shard));
}

}  // namespace

TEST_CASE("a worker that is killed at any point of a step is replaced, and the step made again",
          "[process]") {
  const std::string worker = GENERATE("w1", "w2", "w3"), where = GENERATE("forward", "backward", "prepare");
  Launcher run(command({"-n", "4", "--elastic"}), {"PLAN=7:" + worker + ":" + where});
  check_undisturbed(run);
  CHECK_THAT(run.errors, Contains(worker + " is lost: w4 takes its place, and the step is made again"));
}

TEST_CASE("a worker that is killed in the course of a step that is decided takes nothing with it",
          "[process]") {
  Launcher run(command({"-n", "4", "--elastic"}), {"PLAN=7:w2:commit;12:w4:commit"});
  check_undisturbed(run);
  CHECK_THAT(run.errors, Contains("w2 is lost: w4 takes its place\n") && Contains("w4 is lost: w5 takes"));
}

TEST_CASE("passes that add up and gradients that travel compressed are as undisturbed", "[process]") {
  const std::string how =
      GENERATE("ACCUMULATE=1", "COMPRESSION=topk(0.2)", "COMPRESSION=1bit", "COMPRESSION=powersgd(1)");
  CAPTURE(how);
  Launcher calm(command({"-n", "4", "--elastic"}), {how});
  REQUIRE(calm.exit_code() == 0);
  Launcher run(command({"-n", "4", "--elastic"}), {how, "PLAN=7:w1:forward;9:w4:backward;12:w2:commit"});
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 0);
  CHECK(numbers(run) == numbers(calm));
  CHECK(numbers(run) != undisturbed());
}

TEST_CASE("replicas that learn by themselves go on, and take their mean, when others are killed",
          "[process]") {
  const std::string how =
      GENERATE("PLAN=6:w1:forward;7:w2:backward;12:w4:commit", "PLAN=9:w3:prepare", "DIES=2:40", "DIES=2:47",
               "DIES=2:54", "DIES=2:61");  // some of these in a mean
  CAPTURE(how);
  Launcher run(command({"-n", "4", "--elastic"}), {"AVERAGE=3", how});
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 0);
  CHECK(run.lines("step ").size() == 20);
  CHECK(run.lines("equal").size() == 1);
  CHECK_THAT(run.errors, Contains(" is lost: "));
}

TEST_CASE("pieces of a replica that is killed are at the one behind it", "[process]") {
  const std::string shard = GENERATE("state", "gradients", "all");
  const std::string plan = GENERATE("7:w1:forward;9:w4:backward", "7:w3:prepare;8:w2:commit;12:w1:commit",
                                    "0:w2:forward;19:w4:commit");
  CAPTURE(shard, plan);
  Launcher run(command({"-n", "4", "--elastic"}), {"SHARD=" + shard, "PLAN=" + plan});
  check_undisturbed(run, shard);
}

TEST_CASE("stages of pipelines that are killed come from another replica", "[process]") {
  const std::string plan = GENERATE("7:w1:forward;9:w5:backward", "6:w4:prepare;8:w2:commit;12:w3:commit",
                                    "0:w2:forward;19:w5:backward", "5:w1:backward;5:w2:backward",
                                    "3:w3:forward;3:w2:backward;11:w6:prepare");
  CAPTURE(plan);
  Launcher run(command(flags("mesh")), {"MESH=1", "PLAN=" + plan});
  check_undisturbed(run, "mesh");
}

TEST_CASE("all stages of a worker that is killed come from another replica, to one worker", "[process]") {
  Launcher run(command(flags("chunks")), {"MESH=2", "PLAN=7:w1:forward;9:w4:backward;12:w2:commit"});
  check_undisturbed(run, "chunks");
}

TEST_CASE("replicas of pipelines that lose workers go on as one of those that are left", "[process]") {
  const std::string plan = GENERATE("7:w1:forward", "7:w1:commit;7:w4:commit");  // w2 takes the place of w4
  const int stages = GENERATE(1, 2);                                             // of a worker
  CAPTURE(plan, stages);
  Launcher run(command({"-n", "5", "--elastic=2:5"}),
               {"MESH=" + std::to_string(stages), "PLAN=" + plan, "STEPS=1000000", "UNTIL_BACK=1"});
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 0);
  CHECK(run.lines("step ").size() == run.lines("members ").size());
  const auto members = run.lines("members ");
  const auto of = [&](int workers) { return "members " + std::to_string(workers * stages); };
  CHECK_THAT(members, Catch::VectorContains(of(2)));
  CHECK(members.front() == of(4));
  CHECK(members.back() == of(4));  // others have come
}

TEST_CASE("checkpoints have the stages where they are", "[process]") {
  const Folder folder;
  Launcher run(command(flags("mesh")), {"MESH=1", "PLAN=9:w1:forward;13:w4:commit;17:w5:forward",
                                        "CHECKPOINTS=" + folder.path.string()});
  check_undisturbed(run, "mesh");
  CHECK(exists(folder.path / "step-0000000020"));
}

TEST_CASE("a worker that leaves before the first step leaves behind what its replica had for itself",
          "[process]") {
  const std::string shard = GENERATE("none", "gradients", "mesh");
  CAPTURE(shard);
  Launcher run(command(flags(shard)), {variable_of(shard), "LEAVES=w2"});
  check_undisturbed(run, shard);
  CHECK_THAT(run.errors, Contains("w2 leaves"));
}

TEST_CASE("a stage that is lost in all replicas is that of the checkpoint", "[process]") {
  const Folder folder;
  Launcher run(command(flags("mesh")),
               {"MESH=1", "PLAN=9:w1:commit;9:w3:commit", "CHECKPOINTS=" + folder.path.string()});
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 0);
  CHECK(run.lines("final ") == std::vector{undisturbed("mesh").back()});
  CHECK_THAT(run.errors, Contains("the replicas of pp 0 are all lost"));
}

TEST_CASE("a worker with pieces that is asked to end leaves, and another one comes in its place",
          "[process]") {
  const std::string steps = "STEPS=300";
  Launcher calm(command({"-n", "4", "--elastic"}), {"SHARD=gradients", steps});
  REQUIRE(calm.exit_code() == 0);
  Launcher run(command({"-n", "4", "--elastic"}), {"SHARD=gradients", steps});
  run.await("step ", 4);
  kill(pid_of(run, "w2"), SIGTERM);
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 0);
  CHECK(numbers(run) == numbers(calm));
  CHECK_THAT(run.errors, Contains("w2 leaves, and 3 of at least 4 workers are there: waiting for one") &&
                             Contains("w4 takes its place"));
}

TEST_CASE("pieces that were lost with their spares are those of the checkpoint", "[process]") {
  const Folder folder;
  Launcher run(command({"-n", "4", "--elastic"}),
               {"SHARD=state", "PLAN=9:w1:forward;9:w2:forward", "CHECKPOINTS=" + folder.path.string()});
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 0);
  CHECK(run.lines("final ") == std::vector{undisturbed("state").back()});
  CHECK_THAT(run.errors, Contains("go at once, and only they had the pieces of rank 0"));
}

TEST_CASE("workers that are killed together, and who comes in their place, leave no trace", "[process]") {
  const std::string plan = GENERATE("7:w1:forward;7:w3:forward", "7:w2:forward;7:w4:forward;7:w5:backward",
                                    "0:w1:backward;0:w2:forward", "3:w1:prepare;4:w4:prepare;4:w2:backward",
                                    "19:w3:backward;18:w2:prepare");
  Launcher run(command({"-n", "4", "--elastic"}), {"PLAN=" + plan});
  check_undisturbed(run);
}

TEST_CASE("a spare takes the place of who is killed, and is replaced as a spare", "[process]") {
  Launcher run(command({"-n", "4", "--elastic", "--spares", "1"}), {"PLAN=5:w1:backward;9:w4:forward"});
  check_undisturbed(run);
  CHECK_THAT(run.errors,
             Contains("w1 is lost: w4 takes its place") && Contains("w4 is lost: w5 takes its place"));
}

TEST_CASE("workers that are killed from outside at any moment leave no trace", "[process]") {
  troupe::Generator random(static_cast<uint64_t>(GENERATE(range(0, 6))));
  Launcher run(command({"-n", "4", "--elastic"}));
  std::vector<std::string> there{"w1", "w2", "w3"};
  int next = 4;
  for (const size_t step : {2, 6, 9, 13, 18}) {
    run.await("step ", step);
    auto& victim = there[random.next() % there.size()];
    kill(pid_of(run, victim), SIGKILL);
    victim = "w" + std::to_string(next++);
  }
  check_undisturbed(run);
}

TEST_CASE("a worker that is asked to end leaves between two steps, and nothing is made again", "[process]") {
  const bool spare = GENERATE(true, false);
  Launcher run(command({"-n", "4", "--elastic", "--spares", spare ? "1" : "0"}));
  run.await("step ", 4);
  kill(pid_of(run, "w2"), SIGTERM);
  check_undisturbed(run);
  CHECK_THAT(run.errors, Contains("w2 leaves"));
  CHECK_THAT(run.errors, !Contains("made again"));
}

TEST_CASE("with a least number a job goes on with fewer, and takes in who comes", "[process]") {
  Launcher run(command({"-n", "4", "--elastic=2:4"}), {"PLAN=3:w2:forward", "STEPS=1000000", "UNTIL_BACK=1"});
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 0);
  CHECK(run.lines("step ").size() == run.lines("members ").size());
  CHECK(run.lines("members 2").size() > 0);
  CHECK(run.lines("members ").back() == "members 3");
  CHECK_THAT(run.errors, Contains("w2 is lost: 3 workers go on, and the step is made again") &&
                             Contains("w4 joined: 4 workers go on"));
}

TEST_CASE("a job whose workers were replaced makes checkpoints, and goes on from them", "[process]") {
  const Folder folder;
  const std::string where = "CHECKPOINTS=" + (folder.path / "run").string();
  Launcher first(command({"-n", "4", "--elastic"}), {where, "STEPS=13", "PLAN=6:w2:backward;9:w1:prepare"});
  const int code = first.exit_code();
  INFO(first.output << first.errors);
  REQUIRE(code == 0);
  Launcher second(command({"-n", "4", "--elastic"}), {where, "PLAN=15:w3:forward"});
  REQUIRE(second.exit_code() == 0);
  INFO(second.output << second.errors);
  auto all = first.lines("step ");
  for (auto& line : second.lines("step ")) all.push_back(line);
  for (auto& line : second.lines("final ")) all.push_back(line);
  CHECK(all == undisturbed());
}

TEST_CASE("a job that has lost its last replica ends as one that lost a worker", "[process]") {
  Launcher run(command({"-n", "2", "--elastic"}), {"PLAN=3:w1:forward"});
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 4);
  CHECK_THAT(run.errors, Contains("all workers with replicas are lost"));
}

TEST_CASE("without elastic workers an attempt is a call, and a loss ends the job", "[process]") {
  Launcher plain(command({"-n", "4"}));
  check_undisturbed(plain);
  Launcher killed(command({"-n", "4"}), {"PLAN=3:w1:forward"});
  CHECK(killed.exit_code() != 0);
  CHECK(killed.lines("step ").size() == 3);
}

namespace {

const std::string kHost = "127.0.0.1";

struct Joiner : Process {
  Joiner(const std::string& port, const std::string& what, std::vector<std::string> environment = {})
      : Process({kTroupeCommand, "join", kHost + ":" + port, program(what)}, std::move(environment)) {}
};

std::string token(char digit) { return "TROUPE_TOKEN=" + std::string(32, digit); }

}  // namespace

TEST_CASE("a worker joins a job that runs, by a number of worker 0, and leaves it", "[process]") {
  const std::string port = std::to_string(free_port());
  Launcher run(command({"-n", "3", "--elastic=2:5", "--master-addr", kHost, "--master-port", port}),
               {"STEPS=1000000", token('a')});
  run.await("step ", 3);
  Joiner first(port, "elastic_job", {token('a')});
  run.await_error("w1000 joined: 4 workers go on");
  Joiner second(port, "elastic_job", {token('a')});
  run.await_error("w1001 joined: 5 workers go on");

  Joiner stranger(port, "elastic_job", {token('b')});
  CHECK(stranger.exit_code() == 2);
  CHECK_THAT(stranger.errors, Contains("refused the cluster token"));
  Joiner other(port, "kill_points", {token('a')});
  CHECK(other.exit_code() == 3);
  CHECK_THAT(other.errors, Contains("w1002 runs another program than w0, or another build of it"));

  kill(first.pid(), SIGTERM);
  run.await_error("w1000 leaves: 4 workers go on");
  CHECK(first.exit_code() == 128 + SIGTERM);
  kill(second.pid(), SIGKILL);
  run.await_error("w1001 is lost: 3 workers go on");
  kill(run.pid(), SIGINT);
  CHECK(run.exit_code() == 128 + SIGINT);
}

TEST_CASE("a job that is not elastic gives nobody a number", "[process]") {
  const std::string port = std::to_string(free_port());
  Launcher run(command({"-n", "3", "--master-addr", kHost, "--master-port", port}),
               {"STEPS=1000000", token('a')});
  run.await("step ", 1);
  Joiner late(port, "elastic_job", {token('a')});
  CHECK(late.exit_code() == 2);
  CHECK_THAT(late.errors, Contains("troupe join: this job takes in nobody after its start"));
  kill(run.pid(), SIGINT);
  CHECK(run.exit_code() == 128 + SIGINT);
}

namespace {

// Once there is one.
pid_t pid_of(const std::string& worker, const std::string& job) {
  for (;;)
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream file(entry.path() / "cmdline", std::ios::binary);
      const std::string title{std::istreambuf_iterator<char>(file), {}};
      if (title.find("[" + worker + " of ") != std::string::npos &&
          title.find("job " + job) != std::string::npos)
        return std::stoi(entry.path().filename());
    }
}

bool has_checkpoint(const std::filesystem::path& folder) {
  std::error_code not_there;
  for (const auto& entry : std::filesystem::directory_iterator(folder, not_there))
    if (entry.path().filename().string().starts_with("step-")) return true;
  return false;
}

Launcher example(const std::string& job, const std::filesystem::path& folder,
                 const std::vector<std::string>& command) {
  std::vector<std::string> all{"-n", "4", "--elastic", "--rdzv-id", job};
  all.insert(all.end(), command.begin(), command.end());
  for (const std::string& more :
       {std::string("--chart"), (folder / "loss.svg").string(), std::string("--checkpoint"),
        (folder / "run").string(), std::string("--checkpoint-every"), std::string("20")})
    all.push_back(more);
  return Launcher(std::move(all));
}

}  // namespace

TEST_CASE("examples of replicas and of pipelines end as undisturbed when their workers are killed",
          "[process]") {
  const std::vector<std::string> command = GENERATE(
      std::vector{program("data_parallel"), std::string("--epochs"), std::string("1")},
      std::vector{program("sharded"), std::string("--steps"), std::string("80"), std::string("--mesh"),
                  std::string("dp=2,pp=2"), std::string(troupe::testing::kText)});
  CAPTURE(command);
  const std::string job = "killed-" + std::to_string(getpid());
  const Folder calm, wild;
  Launcher undisturbed = example("calm-" + std::to_string(getpid()), calm.path, command);
  REQUIRE(undisturbed.exit_code() == 0);
  Launcher run = example(job, wild.path, command);
  while (!has_checkpoint(wild.path / "run")) continue;  // it trains
  for (const char* worker : {"w2", "w4", "w1"}) kill(pid_of(worker, job), SIGKILL);
  const int code = run.exit_code();
  INFO(run.output << run.errors);
  CHECK(code == 0);
  CHECK(content(wild.path / "loss.svg") == content(calm.path / "loss.svg"));
}
