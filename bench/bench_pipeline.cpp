// Six transformer blocks as a pipeline on two workers, beside the same blocks in one process: `troupe run -n
// 3 bench_pipeline`. Each worker has three of them in one chunk, or (interleaved) in three. The batch of 32
// is the peer's; cut into 32 it leaves one sample to a micro-batch, whose products are too small to be fast,
// so that a batch of 256 shows what the schedule makes of its time.
#include "bench/measure.h"
#include "parallel/pipeline/pipeline.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

constexpr int64_t kContext = 64, kWidth = 128, kHeads = 4;

struct Blocks : nn::Layer {  // [batch, time, width] -> the same
  explicit Blocks(int64_t count) {
    const nn::TransformerEncoderLayerOptions gpt{.dim_feedforward = 4 * kWidth,
                                                 .dropout = 0,
                                                 .activation = "gelu",
                                                 .norm_first = true,
                                                 .causal = true};
    for (int64_t i = 0; i < count; ++i) blocks.add(nn::TransformerEncoderLayer(kWidth, kHeads, gpt));
    Generator random(1);
    blocks.reset(random);
  }
  Tensor forward(const Tensor& x) override { return blocks(x); }
  void members(nn::Members& m) override { m("blocks", blocks); }
  nn::Sequential blocks;
};

struct Stage : nn::ModuleActor<Blocks> {
  explicit Stage(int64_t count) : ModuleActor(count) {}
  Tensor forward(Tensor x) { return net(x); }
  Tensor loss(Tensor y, Tensor) { return mean(mul(y, y)); }
  static constexpr auto remote = methods<&Stage::forward, &Stage::loss>;
};

constexpr int kBlocks = 6, kWorkers = 2;

struct PipelineTimes {
  Cluster& cluster;
  const bench::Bench& bench;

  // So many chunks for each worker, the first to the first and so on.
  std::vector<RRef<Stage>> spawn(int chunks) const {
    const auto names = cluster.workers();
    std::vector<RRef<Stage>> all;
    for (int s = 0; s < kWorkers * chunks; ++s)
      all.push_back(
          cluster.spawn<Stage>(names[static_cast<size_t>(1 + s % kWorkers)], kBlocks / kWorkers / chunks));
    return all;
  }

  double in_one_process(const Tensor& x, int steps) const {
    Blocks whole(kBlocks);
    optim::SGD local(whole.parameters(), {.lr = 0.01});
    const double us = bench.median_us(
        [&] {
          local.zero_grad();
          const Tensor y = whole(x);
          autograd::backward(mean(mul(y, y)));
          local.step();
        },
        steps, 3);
    bench.emit("pipeline_single_step_us", us, "us",
               {{"blocks", kBlocks},
                {"width", kWidth},
                {"batch", double(x.size(0))},
                {"context", double(x.size(1))}});
    return us;
  }

  // `of_formula`: the speed-up as a part of p m / (m + p - 1) (GPipe, Huang et al. 2019; 1F1B has the same).
  void as_pipeline(const std::string& name, const std::string& schedule, int chunks, const Tensor& x, int m,
                   int steps, double one) const {
    const std::vector<RRef<Stage>> actors = spawn(chunks);
    optim::Distributed<optim::SGD> sgd({actors.begin(), actors.end()}, {.lr = 0.01});
    std::vector<parallel::Stage> stages;
    for (const auto& actor : actors) stages.push_back(parallel::stage<&Stage::forward>(actor));
    stages.back() = stages.back().with_loss<&Stage::loss>();
    parallel::Pipeline pipeline(cluster.here(), stages,
                                {.schedule = schedule, .micro_batches = m, .chunks = chunks});
    const double us = bench.median_us(
        [&] {
          autograd::Context context(cluster);
          pipeline.step(x, x);
          sgd.step(context);
        },
        steps, 3);
    bench.emit(name, us, "us",
               {{"stages", kWorkers},
                {"chunks", chunks},
                {"micro_batches", m},
                {"speedup", one / us},
                {"of_formula", one / us * (m + kWorkers - 1) / (kWorkers * m)}});
  }
};

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_pipeline",
                     "Times steps of a pipeline of two stages; start it with troupe run -n 3.", argc, argv);
  if (bench.exit_code) return *bench.exit_code;
  return launch(hosting<Stage>(), [&](Cluster& cluster) {
    const auto names = cluster.workers();
    if (names.size() < 3)
      throw_invalid("[bench] bench_pipeline needs 3 workers, got " + std::to_string(names.size()));
    if (!LaunchEnvironment::read()) bench.set_placement("in-process");
    const PipelineTimes times{cluster, bench};
    Generator random(0);
    const int64_t context = bench.count(kContext);
    const Tensor x = randn({32, context, kWidth}, random);
    const double one = times.in_one_process(x, 15);
    for (const int m : {1, 4, 8, 32}) times.as_pipeline("pipeline_step_us", "1f1b", 1, x, m, 15, one);
    for (const int m : {4, 8}) times.as_pipeline("pipeline_step_us", "interleaved", 3, x, m, 15, one);
    for (const int m : {4, 8, 32})
      times.as_pipeline("pipeline_zero_bubble_step_us", "zb-h1", 1, x, m, 15, one);
    const Tensor large = randn({256, context, kWidth}, random);
    const double one_large = times.in_one_process(large, 7);
    for (const int m : {4, 8, 32})
      times.as_pipeline("pipeline_large_step_us", "1f1b", 1, large, m, 7, one_large);
  });
}
