// The process of a parameter server, or of one of its trainers, is killed with SIGKILL in the middle of a BSP
// step: errors name the worker, nobody hangs, and those left go on.
#include "tests/process/launcher.h"
#include "tests/support/folder.h"

using namespace troupe::testing;

namespace {

std::vector<std::string> member(int rank) {
  return {"TROUPE_RANK=" + std::to_string(rank), "TROUPE_WORLD_SIZE=4",
          "TROUPE_ADDRESS=unix:@troupe-server-killed-" + std::to_string(getpid()),
          "TROUPE_TOKEN=a token for the tests of servers"};
}

// Runs the program as four processes, of which the victim must end by SIGKILL; its driver.
std::unique_ptr<Process> run(const std::string& victim, const std::string& point, const std::string& policy,
                             const std::vector<std::string>& more = {}) {
  std::vector<std::string> command{
      program("server_killed"), "--victim", victim, "--point", point, "--policy", policy};
  command.insert(command.end(), more.begin(), more.end());
  auto driver = std::make_unique<Process>(command, member(0));
  std::vector<std::unique_ptr<Process>> workers;
  for (int rank = 1; rank < 4; ++rank) workers.push_back(std::make_unique<Process>(command, member(rank)));
  const int code = driver->exit_code();
  INFO(victim << " at " << point << ", " << policy << ": " << driver->output << driver->errors);
  CHECK(code == 0);
  for (int rank = 1; rank < 4; ++rank) {
    const bool died = victim == "w" + std::to_string(rank);
    CHECK(workers[static_cast<size_t>(rank - 1)]->exit_code() == (died ? 137 : 0));
  }
  CHECK(driver->lines("nothing left").size() == 1);
  return driver;
}

}  // namespace

TEST_CASE("a killed server is named to every trainer, and they go on with another one", "[process]") {
  const std::string point = GENERATE("server pulled", "server held", "server closing");
  const std::string policy = GENERATE("bsp", "bsp or abort");
  const auto driver = run("w1", point, policy);
  INFO(point << ", " << policy << ": " << driver->output << driver->errors);
  for (const char* trainer : {"w0", "w2", "w3"})
    CHECK(driver->line(std::string("trainer of ") + trainer + ": ") == "disconnected of w1");
  CHECK(driver->line("learnt ") == "it");  // the second time
  CHECK(driver->lines("trainer of w0 ends, 0 aborted").size() == 1);
  CHECK(driver->lines("trainer of w3 ends, 0 aborted").size() == 1);
}

TEST_CASE("a backup goes on for a killed server, and its trainers hear nothing of it", "[process]") {
  const std::string point = GENERATE("server pulled", "server held", "server closing");
  const std::string policy = GENERATE("bsp", "async");
  const auto driver = run("w1", point, policy, {"--backup", "w2"});
  INFO(point << ", " << policy << ": " << driver->output << driver->errors);
  for (const char* trainer : {"w0", "w3"})
    CHECK(driver->lines(std::string("trainer of ") + trainer + " ends, 0 aborted").size() == 2);
  CHECK(driver->lines("trainer of w2 ends, 0 aborted").size() == 1);  // the other time it has the server
  if (policy == "bsp") CHECK(driver->lines("learnt it").size() == 2);
  const std::string said = driver->line("version ");
  CHECK_THAT(said, Catch::StartsWith(policy == "bsp" ? "10, " : "30, ") &&
                       Catch::EndsWith("0 late, goes on for w1, which is lost"));
}

TEST_CASE("a job goes on at the backup of its servers, and from checkpoints that have what that has",
          "[process]") {
  const Folder folder;
  const auto job = [](std::vector<std::string> variables) {
    auto run = std::make_unique<Launcher>(
        std::vector<std::string>{"-n", "4", "--elastic=2:4", program("served_job")}, std::move(variables));
    const int code = run->exit_code();
    INFO(run->output << run->errors);
    CHECK(code == 0);
    return run;
  };
  const auto calm = job({}), longer = job({"STEPS=16"});
  const std::string dir = "CHECKPOINTS=" + folder.path.string();
  const auto killed = job({"KILL=6", dir});
  CHECK(killed->lines("final ") == calm->lines("final "));
  CHECK(killed->line("server ") == "goes on for w1, which is lost");
  CHECK(std::filesystem::exists(folder.path / "step-0000000012"));
  const auto resumed = job({"STEPS=16", dir});
  CHECK(resumed->lines("final ") == longer->lines("final "));
  CHECK(resumed->line("server ") == "has a backup on w2");
}

TEST_CASE("a killed trainer's step closes on the rest or is done again, as chosen", "[process]") {
  const std::string victim = GENERATE("w2", "w3"), point = GENERATE("pulled", "held", "pushing", "pushed");
  const std::string policy = GENERATE("bsp", "bsp or abort");
  const auto driver = run(victim, point, policy);
  INFO(victim << " at " << point << ", " << policy << ": " << driver->output << driver->errors);
  CHECK(driver->line("trainer of " + victim + ": ") == "disconnected of " + victim);
  CHECK(driver->lines("learnt it").size() == 2);
  const std::string said = driver->line("said ");
  CHECK_THAT(said, Catch::Contains("was lost with " + victim));
  const std::string rest = victim == "w2" ? "w3" : "w2";
  for (const std::string& trainer : {std::string("w0"), rest})
    CHECK(driver->lines("trainer of " + trainer + " ends, ").size() == 2);
  // Having read and not pushed, it was waited for in step 2. Who had not pushed yet either sees no abort.
  if (point == "pulled" || point == "held")
    CHECK_THAT(said, Catch::Contains(policy == "bsp" ? "step 2 closes on the rest" : "step 2 was aborted"));
  for (const std::string& trainer : {std::string("w0"), rest})
    CHECK(driver->lines("trainer of " + trainer + " ends, 1 aborted").size() <= (policy != "bsp"));
}
