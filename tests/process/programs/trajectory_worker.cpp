// Trains one run of trajectories.json split over the workers, and prints what train_split() says.
#include "tests/process/programs/split_mlp.h"
#include "tools/flags/flags.h"
using namespace troupe;

int main(int argc, char** argv) {
  std::string data = "generated";
  int64_t index = 0, steps = 120;
  tools::Flags flags("trajectory_worker", "Trains an mlp of trajectories.json split over three workers.");
  flags.add("--data", data, "generated or mnist")
      .add("--run", index, "which of the mlp runs on these data, from 0", {0, 100})
      .add("--steps", steps, "how many", {0, 120});
  if (auto code = flags.parse(argc, argv)) return *code;
  const auto runs = testing::mlp_runs(data);
  return launch(hosting<testing::Stage>(), [&](Cluster& cluster) {
    testing::train_split(cluster, runs.at(static_cast<size_t>(index)), static_cast<int>(steps),
                         [](const std::string& line) { std::printf("%s\n", line.c_str()); });
  });
}
