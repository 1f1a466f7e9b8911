// Whole training programs when work on GPUs is delayed and reordered as far as CUDA's rules allow.
#ifdef TROUPE_CUDA_SIM
#include "tests/cuda_train/runs.h"
#include "tests/parallel/stages.h"
#include "tests/support/sim_cuda/sim.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr int kSteps = 3;
using Devices = std::vector<std::string>;
const Devices kHost{"cpu", "cpu", "cpu", "cpu"}, kFour{"cuda:0", "cuda:1", "cuda:2", "cuda:3"},
    kMixed{"cuda:0", "cpu", "cuda:1", "cpu"}, kSame{"cuda:0", "cuda:0", "cuda:0", "cuda:0"};

std::pair<Tensor, Tensor> small_batch(int step) {
  return {wave({8, kWidth}, 1 + step), wave({8, kWidth}, 20 + step)};
}

std::vector<RRef<Block>> blocks_on(Cluster& cluster, const Devices& devices) {
  std::vector<RRef<Block>> blocks;
  for (int64_t i = 0; i < static_cast<int64_t>(devices.size()); ++i) {
    blocks.push_back(cluster.spawn<Block>((i + 1) % static_cast<int64_t>(cluster.workers().size()), i));
    nn::remote_to(blocks.back(), devices[static_cast<size_t>(i)]).get();
  }
  return blocks;
}

std::vector<double> serve_and_train(Cluster& cluster, bool recorded, const Devices& devices) {
  const auto served = parallel::serve(cluster.here(), {"w1", "w2"},
                                      {wave({9, kWidth}, 1), wave({9}, 2), wave({5, 9}, 3), wave({5}, 4)},
                                      {.optimizer = "adam", .options = {{"lr", 0.01}}, .trainers = 4});
  std::vector<RRef<Trainer>> trainers;
  for (int64_t i = 0; i < 4; ++i)
    trainers.push_back(cluster.spawn<Trainer>(i, served, devices[static_cast<size_t>(i)]));
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Future<double>> parts;
    for (size_t i = 0; i < trainers.size(); ++i) {
      const Tensor x = wave({4, kWidth}, static_cast<double>(10 * step + static_cast<int>(i)));
      const Tensor y = tensor({0, 4, 2, 1});
      parts.push_back(recorded ? trainers[i].call<&Trainer::recorded_step>(x, y)
                               : trainers[i].call<&Trainer::step>(x, y));
    }
    for (auto& part : parts) losses.push_back(part.get());
  }
  return losses;
}

template <class Program>
std::vector<double> losses_of(Program&& program) {
  const auto cluster = Cluster::in_process(4, hosting<Block, Trainer>());
  std::vector<double> losses = program(*cluster);
  nothing_left(*cluster);
  return losses;
}

// program(cluster, seed, devices): what the CPU gives, under every schedule; then nothing is left.
template <class Program>
void under_all(Program&& program) {
  if (!needs_gpus(4)) return;
  const std::vector<size_t> before = gpu_bytes();
  for (uint64_t seed = 1; seed <= seeds(50); ++seed) {
    INFO("seed " << seed);
    const auto wanted = losses_of([&](Cluster& c) { return program(c, seed, kHost); });
    sim_cuda::schedule_by_seed(seed);
    const auto got = losses_of([&](Cluster& c) {
      return program(c, seed, seed % 3 == 0 ? kMixed : seed % 3 == 1 ? kFour : kSame);
    });
    sim_cuda::schedule_eagerly();
    REQUIRE(sim_cuda::take_fault() == "");
    REQUIRE(sim_cuda::pending() == 0);
    REQUIRE(gpu_bytes() == before);
    REQUIRE(got.size() == wanted.size());
    for (size_t i = 0; i < got.size(); ++i) REQUIRE(got[i] == Approx(wanted[i]).epsilon(1e-5));
  }
}

}  // namespace

TEST_CASE("calls and backward passes are in order under every schedule") {
  under_all([](Cluster& cluster, uint64_t, const Devices& devices) {
    return train_by_calls(cluster, blocks_on(cluster, devices), kSteps, small_batch, "adamw", {{"lr", 0.1}});
  });
}

TEST_CASE("pipelines are in order under every schedule") {
  under_all([](Cluster& cluster, uint64_t seed, const Devices& devices) {
    const char* schedules[] = {"gpipe", "1f1b", "zb-h1", "credits(3)"};
    return train_as_pipeline(cluster, blocks_on(cluster, devices), kSteps, small_batch, "sgd",
                             {{"lr", 0.1}, {"momentum", 0.9}},
                             {.schedule = schedules[seed / 3 % 4], .micro_batches = 4});
  });
}

TEST_CASE("trainers on GPUs and their servers are in order under every schedule") {
  under_all([](Cluster& cluster, uint64_t seed, const Devices& devices) {
    return serve_and_train(cluster, seed % 2 == 0, devices);
  });
}
#endif
