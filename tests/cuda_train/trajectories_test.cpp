// Training on GPUs follows PyTorch's losses, however it is distributed.
#include "tests/cuda_train/runs.h"
#include "tests/support/nothing_left.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

const std::vector<std::string> kFour{"cuda:0", "cuda:1", "cuda:2", "cuda:3"};
const std::vector<std::string> kMixed{"cuda:0", "cpu", "cuda:1", "cpu"};

void check(const Run& run, int steps, const std::vector<double>& losses, DType dtype = float32) {
  REQUIRE(losses.size() == static_cast<size_t>(steps));
  const auto [distance, step] = farthest(run, losses, dtype);
  INFO(run.str() << ": largest difference at step " << step);
  CHECK(distance <= tolerance(run, dtype));
}

// Trains in a cluster of four workers, and looks for what is left of it.
template <class F>
void in_cluster(const Run& run, int steps, F&& train, DType dtype = float32) {
  const std::vector<size_t> before = gpu_bytes();
  {
    const auto cluster = Cluster::in_process(4, training_actors());
    check(run, steps, train(*cluster), dtype);
    nothing_left(*cluster);
  }
  CHECK(gpu_bytes() == before);
}

// Simulated kernels are slow: without TROUPE_WHOLE_RUNS, a run's first steps.
int length(const Run& run) {
  const int whole = static_cast<int>(run.losses.size()), few = run.model == "mlp" ? 5 : 2;
  return std::getenv("TROUPE_WHOLE_RUNS") ? whole : few;
}

}  // namespace

TEST_CASE("the mlp on a GPU follows PyTorch's losses") {
  if (!needs_gpus(1)) return;
  const std::vector<size_t> before = gpu_bytes();
  for (const Run& run : mlp_runs("generated"))
    for (const DType dtype : {float32, float64})
      check(run, length(run), train_here(run, length(run), Device("cuda:0"), dtype), dtype);
  CHECK(gpu_bytes() == before);
}

TEST_CASE("the transformer on a GPU follows PyTorch's losses") {
  if (!needs_gpus(2)) return;
  const std::vector<size_t> before = gpu_bytes();
  for (const Run& run : transformer_runs("generated"))
    check(run, length(run), train_here(run, length(run), Device("cuda:1")));
  CHECK(gpu_bytes() == before);
}

TEST_CASE("the mlp over calls between workers with GPUs follows PyTorch's losses") {
  if (!needs_gpus(4)) return;
  for (const Run& run : mlp_runs("generated")) {
    const int steps = length(run);
    in_cluster(run, steps, [&](Cluster& c) { return train_by_calls<MlpStage>(c, run, steps, kFour); });
    in_cluster(
        run, steps, [&](Cluster& c) { return train_by_calls<MlpStage>(c, run, steps, kMixed, float64); },
        float64);
  }
}

TEST_CASE("the transformer over calls between workers with GPUs follows PyTorch's losses") {
  if (!needs_gpus(4)) return;
  for (const Run& run : transformer_runs("generated"))
    in_cluster(run, length(run),
               [&](Cluster& c) { return train_by_calls<Piece>(c, run, length(run), kFour); });
}

TEST_CASE("pipelines of stages on GPUs and on the CPU follow PyTorch's losses") {
  if (!needs_gpus(4)) return;
  for (const Run& run : mlp_runs("generated"))
    for (const char* schedule : {"1f1b", "zb-h1"})
      in_cluster(run, length(run), [&](Cluster& c) {
        return train_as_pipeline<MlpStage>(c, run, length(run), kMixed,
                                           {.schedule = schedule, .micro_batches = 4});
      });
  for (const Run& run : transformer_runs("generated"))
    in_cluster(run, length(run), [&](Cluster& c) {
      return train_as_pipeline<Piece>(c, run, length(run), kMixed,
                                      {.schedule = "credits(3)", .micro_batches = 2});
    });
}

TEST_CASE("servers on the CPU with trainers on GPUs follow PyTorch's losses") {
  if (!needs_gpus(4)) return;
  for (const Run& run : mlp_runs("generated"))
    for (const bool recorded : {false, true})
      in_cluster(run, length(run), [&](Cluster& c) {
        return train_served(c, run, length(run), 4, {"w1", "w2"}, "bsp", 70000, recorded, float32, kFour);
      });
}

TEST_CASE("a trainer on the CPU with a model on a GPU follows PyTorch's losses") {
  if (!needs_gpus(1)) return;
  for (const Run& run : mlp_runs("generated"))
    in_cluster(run, length(run), [&](Cluster& c) {
      return train_by_calls<MlpStage>(c, run, length(run), {"cuda:0", "cuda:0", "cpu"});
    });
}
