// One of four processes kills itself, with SIGKILL, at an exact point: the driver gets an error that names
// it, nothing is left on the others, and they train on.
#include "tests/process/launcher.h"

using namespace troupe::testing;

namespace {

std::vector<std::string> member(int rank) {
  return {"TROUPE_RANK=" + std::to_string(rank), "TROUPE_WORLD_SIZE=4",
          "TROUPE_ADDRESS=unix:@troupe-kill-points-" + std::to_string(getpid()),
          "TROUPE_TOKEN=a token for the tests of kill points"};
}

void dies(const std::string& point, const std::string& victim, bool straight) {
  std::vector<std::string> command{program("kill_points"), "--point", point, "--victim", victim};
  if (straight) command.emplace_back("--straight");
  Process driver(command, member(0));
  std::vector<std::unique_ptr<Process>> workers;
  for (int rank = 1; rank < 4; ++rank) workers.push_back(std::make_unique<Process>(command, member(rank)));
  const int code = driver.exit_code();
  INFO(point << " on " << victim << ": " << driver.output << driver.errors);
  CHECK(code == 0);
  CHECK(driver.line("error ") == "disconnected of " + victim);
  CHECK(driver.line("goes on with ") == "2: right");
  CHECK(driver.lines("nothing left").size() == 1);
  WARN(point << " on " << victim << ": error after " << driver.line("after ")
             << " from the start of the step");
  for (int rank = 1; rank < 4; ++rank) {
    const bool died = victim == "w" + std::to_string(rank);
    CHECK(workers[static_cast<size_t>(rank - 1)]->exit_code() == (died ? 137 : 0));
  }
}

using Point = std::pair<std::string, std::string>;

}  // namespace

TEST_CASE("a process that dies at an exact point is named, and the others forget it and train on",
          "[process]") {
  const auto [point, victim] =
      GENERATE(Point{"construction", "w1"}, Point{"construction", "w3"}, Point{"forward", "w1"},
               Point{"forward", "w2"}, Point{"forward", "w3"}, Point{"answer", "w1"}, Point{"answer", "w2"},
               Point{"answer", "w3"}, Point{"between", "w1"}, Point{"between", "w2"}, Point{"between", "w3"},
               Point{"backward", "w1"}, Point{"backward", "w2"}, Point{"backward", "w3"},
               Point{"optimizer", "w2"}, Point{"step", "w1"}, Point{"step", "w3"}, Point{"release", "w1"},
               Point{"release", "w2"}, Point{"holding", "w1"}, Point{"holding", "w2"});
  dies(point, victim, false);
}

TEST_CASE("a process that dies at an exact point of a chain whose results go straight is named",
          "[process]") {
  const auto [point, victim] =
      GENERATE(Point{"forward", "w1"}, Point{"forward", "w2"}, Point{"forward", "w3"}, Point{"answer", "w1"},
               Point{"answer", "w2"}, Point{"answer", "w3"}, Point{"backward", "w1"}, Point{"backward", "w2"},
               Point{"backward", "w3"}, Point{"step", "w2"});
  dies(point, victim, true);
}
