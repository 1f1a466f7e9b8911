// A deep perceptron learns drawn digits as a pipeline over all workers but the driver's, and draws what a
// step did.
#include <cstdio>

#include <troupe/data.h>
#include <troupe/pipeline.h>
#include <troupe/tools/draw/timeline.h>
#include <troupe/tools/flags/flags.h>
#include <troupe/troupe.h>
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
  tools::Flags flags("pipeline", "Trains 11 layers as a pipeline (troupe run -n 3 pipeline).");
  auto& steps = flags.whole("--steps", 100, "training steps", {2, 1e6});
  auto& batch = flags.whole("--batch", 256, "digits per step", {1, 4096});
  auto& micro_batches = flags.whole("--micro-batches", 8, "that a batch is cut into", {1, 1e4});
  auto& chunks = flags.whole("--chunks", 1,
                             "stages of each worker: zb-v, dualpipe-v: 2; interleaved, looped-bfs", {1, 15});
  auto& schedule = flags.text("--schedule", "auto", "1f1b, zb-v, ... (docs/reference/schedules)");
  auto& recompute = flags.given("--recompute", "keep no activations: less memory, more time");
  auto& lr = flags.number("--lr", 1e-3, "learning rate", {0, 100});
  auto& picture = flags.picture("--chart", "pipeline.svg", "picture of the last step (SVG)");
  auto& trace = flags.picture("--trace", "", "the same for ui.perfetto.dev (JSON)");
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("loss <= 0.5", "in its last step").parse(argc, argv)) return *code;

  const auto train = [&](Cluster& cluster) {
    flags.check_outputs();
    const auto workers = cluster.workers();
    const std::vector<Place> places(workers.begin() + (workers.size() > 1), workers.end());
    const int count = static_cast<int>(chunks * std::ssize(places));
    const datasets::Dataset digits = datasets::generated_digits(4096, 7);
    const auto cuts =
        parallel::balance_by_time(Net::make(), digits.x.slice(0, 0, batch / micro_batches + 1), count);
    parallel::PipelineOptions options{.schedule = schedule};
    options.micro_batches = static_cast<int>(micro_batches), options.chunks = static_cast<int>(chunks);
    if (recompute) options.checkpoint = parallel::Checkpoint::always;
    const auto stages_at = parallel::places_of_stages(places, options);
    const auto parts = parallel::split<Net>(cluster.here(), stages_at, cuts);
    parallel::Pipeline pipeline(cluster.here(), parts, options);
    optim::Distributed<optim::Adam> optimizer(parallel::actors_of(parts), {.lr = lr});
    Job job(cluster);
    for (const int64_t step : job.steps(steps)) {
      const int64_t from = step * batch % (digits.x.size(0) - batch + 1);
      autograd::Context context(cluster);
      const auto [x, y] = datasets::rows(digits, from, batch);
      const auto result = pipeline.step(Value(x), Value(y));
      optimizer.step(context);
      if (step % 20 == 0 || step + 1 == steps) std::printf("step %4ld  loss %.4f\n", step, result.loss);
    }
    std::printf("%s\npicture: %s\n", pipeline.step_report().str().c_str(), picture.c_str());
    tools::write_timeline(picture, pipeline.step_report());
    if (!trace.empty()) tools::write_chrome_trace(trace, pipeline.step_report());
  };
  return launch(train, {.checkpoints = saved});
}
