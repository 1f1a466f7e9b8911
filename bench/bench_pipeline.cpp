// Six transformer blocks as a pipeline of two stages, beside the same blocks in one process: `troupe run -n 3
// bench_pipeline`.
#include "bench/measure.h"
#include "parallel/pipeline.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

constexpr int64_t kBatch = 32, kContext = 64, kWidth = 128, kHeads = 4;

struct Blocks : nn::Layer {  // [batch, time, width] -> the same
  explicit Blocks(int64_t count) {
    for (int64_t i = 0; i < count; ++i) blocks.add(nn::TransformerBlock(kWidth, kHeads));
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
  static constexpr auto remote = methods<Stage, int64_t>("forward", &Stage::forward, "loss", &Stage::loss);
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
    if (!Environment::read()) bench.set_placement("in-process");
    Generator random(0);
    const Tensor x = randn({kBatch, kContext, kWidth}, random);

    Blocks whole(6);
    optim::SGD local(whole.parameters(), {.lr = 0.01});
    const double one = bench.median_us(
        [&] {
          local.zero_grad();
          const Tensor y = whole(x);
          autograd::backward(mean(mul(y, y)));
          local.step();
        },
        15, 3);
    bench.emit("pipeline_single_step_us", one, "us",
               {{"blocks", 6}, {"width", kWidth}, {"batch", kBatch}, {"context", kContext}});

    const auto first = cluster.spawn<Stage>(names[1], 3), last = cluster.spawn<Stage>(names[2], 3);
    optim::Distributed<optim::SGD> sgd({first, last}, {.lr = 0.01});
    const auto time = [&](const char* name, const char* schedule, int m) {
      parallel::Pipeline pipeline(cluster.here(),
                                  {parallel::stage<&Stage::forward>(first),
                                   parallel::stage<&Stage::forward>(last).with_loss<&Stage::loss>()},
                                  {.schedule = schedule, .micro_batches = m});
      const double us = bench.median_us(
          [&] {
            autograd::Context context(cluster);
            pipeline.step(x, x);
            sgd.step(context);
          },
          15, 3);
      bench.emit(name, us, "us", {{"stages", 2}, {"micro_batches", m}, {"speedup", one / us}});
    };
    for (const int m : {1, 4, 8, 32}) time("pipeline_step_us", "1f1b", m);
    for (const int m : {4, 8, 32}) time("pipeline_zero_bubble_step_us", "zb-h1", m);
  });
}
