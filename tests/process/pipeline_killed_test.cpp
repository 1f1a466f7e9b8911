// A worker of a pipeline is killed with SIGKILL in the middle of a step: the caller gets an error that names
// it, nothing is left on the others, and a new pipeline among them works.
#include "tests/process/launcher.h"

using namespace troupe::testing;

namespace {

struct Death {
  std::string victim, point, micro_batch, schedule;
};

std::vector<std::string> member(int rank) {
  return {"TROUPE_RANK=" + std::to_string(rank), "TROUPE_WORLD_SIZE=4",
          "TROUPE_ADDRESS=unix:@troupe-pipeline-killed-" + std::to_string(getpid()),
          "TROUPE_TOKEN=a token for the tests of pipelines"};
}

}  // namespace

TEST_CASE("a worker that is killed in the middle of a pipeline step is named, and the others go on",
          "[process]") {
  const auto [victim, point, micro_batch, schedule] =
      GENERATE(Death{"w1", "forward", "0", "1f1b"}, Death{"w2", "forward", "3", "gpipe"},
               Death{"w3", "forward", "5", "zb-h1"}, Death{"w1", "backward", "5", "gpipe"},
               Death{"w2", "backward", "2", "1f1b"}, Death{"w3", "backward", "0", "credits(2)"},
               Death{"w1", "weights", "1", "zb-h2"}, Death{"w2", "weights", "5", "zb-h1"});
  const std::vector<std::string> command{program("pipeline_killed"),
                                         "--victim",
                                         victim,
                                         "--point",
                                         point,
                                         "--micro-batch",
                                         micro_batch,
                                         "--schedule",
                                         schedule};
  Process driver(command, member(0));
  std::vector<std::unique_ptr<Process>> workers;
  for (int rank = 1; rank < 4; ++rank) workers.push_back(std::make_unique<Process>(command, member(rank)));
  const int code = driver.exit_code();
  INFO(point << " of micro-batch " << micro_batch << " on " << victim << ", " << schedule << ": "
             << driver.output << driver.errors);
  CHECK(code == 0);
  CHECK(driver.line("error ") == "disconnected of " + victim);
  CHECK(driver.line("goes on with ") == "2: learns");
  CHECK(driver.lines("nothing left").size() == 1);
  for (int rank = 1; rank < 4; ++rank) {
    const bool died = victim == "w" + std::to_string(rank);
    CHECK(workers[static_cast<size_t>(rank - 1)]->exit_code() == (died ? 137 : 0));
  }
}
