// Trains the transformer of trajectories.json as a pipeline over the workers, and prints the losses.
#include "tests/parallel/transformer.h"
#include "tools/flags/flags.h"
using namespace troupe;

int main(int argc, char** argv) {
  std::string schedule = "1f1b";
  int64_t stages = 2, chunks = 1, micro_batches = 4, steps = 3;
  bool recompute = false;
  tools::Flags flags("pipeline_worker", "Trains the transformer of trajectories.json as a pipeline.");
  flags.add("--schedule", schedule, "as parallel::make_policy takes it")
      .add("--stages", stages, "pieces of the model", {1, 4})
      .add("--chunks", chunks, "stages on each worker of the pipeline", {1, 4})
      .add("--micro-batches", micro_batches, "of a batch of 8", {1, 8})
      .add("--steps", steps, "how many", {0, 40})
      .add("--recompute", recompute, "activations");
  if (auto code = flags.parse(argc, argv)) return *code;
  return launch(hosting<testing::Piece>(), [&](Cluster& cluster) {
    const auto losses = testing::train_pipeline(
        cluster, testing::transformer_runs("generated").at(0), static_cast<int>(steps), stages,
        {.schedule = schedule,
         .micro_batches = static_cast<int>(micro_batches),
         .chunks = static_cast<int>(chunks),
         .checkpoint = recompute ? parallel::Checkpoint::always : parallel::Checkpoint::never});
    for (size_t i = 0; i < losses.size(); ++i) std::printf("loss %zu %a\n", i, losses[i]);
  });
}
