// A deep perceptron learns drawn digits as a pipeline over all workers but the driver's, and draws what a
// step did.
#include <cstdio>

#include "data/digits.h"
#include "parallel/pipeline/split.h"
#include "tools/flags/flags.h"
#include "tools/draw/timeline.h"
#include "troupe/troupe.h"
using namespace troupe;

struct Net {  // the model, as every worker can make it; each keeps its layers only
  static nn::Sequential make() {
    Generator random(1);
    nn::Sequential net(nn::Linear(784, 256, random), nn::ReLU());
    for (int i = 0; i < 9; ++i) net.add(nn::Linear(256, 256, random)).add(nn::ReLU());
    return net.add(nn::Linear(256, 10, random)), net;
  }
  static Tensor loss(const Tensor& scores, const Tensor& labels) { return cross_entropy(scores, labels); }
};

int main(int argc, char** argv) {
  int64_t steps = 100, batch = 256, micro_batches = 8, chunks = 1;
  double lr = 1e-3;
  std::string schedule = "auto", picture = "pipeline.svg", trace;
  bool recompute = false;
  tools::Flags flags("pipeline",
                     "Trains a perceptron of 11 layers as a pipeline (troupe run -n 3 pipeline).");
  flags.add("--steps", steps, "training steps", {2, 1e6})
      .add("--batch", batch, "digits per step", {1, 4096})
      .add("--micro-batches", micro_batches, "that a batch is cut into", {1, 1e4})
      .add("--chunks", chunks, "stages of each worker but the driver's, for interleaved", {1, 15})
      .add("--schedule", schedule, "gpipe, 1f1b, interleaved, zb-h1, zb-h2, credits(n) or auto")
      .add("--recompute", recompute, "keep no activations: less memory, more time")
      .add("--lr", lr, "learning rate", {0, 100})
      .output("--chart", picture, "picture of the last step (SVG)")
      .output("--trace", trace, "the same for ui.perfetto.dev (JSON)")
      .reaches("loss <= 0.5", "in its last step");
  if (auto code = flags.parse(argc, argv)) return *code;

  return launch(hosting<parallel::StageModule<Net>>(), [&](Cluster& cluster) {
    flags.check_outputs();
    const auto workers = cluster.workers();
    const std::vector<Place> places(workers.begin() + (workers.size() > 1), workers.end());
    const int count = static_cast<int>(chunks * std::ssize(places));
    const data::Dataset digits = data::generated_digits(4096, 7);
    const auto cuts =
        parallel::balance_by_time(Net::make(), digits.x.slice(0, 0, batch / micro_batches + 1), count);
    const auto parts = parallel::split<Net>(cluster.here(), places, cuts);
    parallel::Pipeline pipeline(
        cluster.here(), parts,
        {.schedule = schedule,
         .micro_batches = static_cast<int>(micro_batches),
         .chunks = static_cast<int>(chunks),
         .checkpoint = recompute ? parallel::Checkpoint::always : parallel::Checkpoint::never});
    optim::Distributed<optim::Adam> optimizer(parallel::actors_of(parts), {.lr = lr});
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t from = step * batch % (digits.x.size(0) - batch + 1);
      autograd::Context context(cluster);
      const auto result =
          pipeline.step(digits.x.slice(0, from, from + batch), digits.y.slice(0, from, from + batch));
      optimizer.step(context);
      if (step % 20 == 0 || step + 1 == steps)
        std::printf("step %4lld  loss %.4f\n", static_cast<long long>(step), result.loss);
    }
    std::printf("%s\n", pipeline.step_report().str().c_str());
    std::printf("picture: %s\n", picture.c_str());
    tools::write_timeline(picture, pipeline.step_report());
    if (!trace.empty()) tools::write_chrome_trace(trace, pipeline.step_report());
  });
}
