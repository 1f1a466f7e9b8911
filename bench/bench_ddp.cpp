// A training step of a compute-bound perceptron: in one process, and by two replicas of it, each with half of
// the batch: `troupe run -n 2 bench_ddp`.
#include "bench/measure.h"
#include "parallel/data/data_parallel.h"
#include "tools/draw/trace_picture.h"
#include "tools/flags/flags.h"
#include "troupe/profile.h"
#include "troupe/troupe.h"
using namespace troupe;
using parallel::split;

namespace {

constexpr int64_t kBatch = 512, kIn = 1024, kHidden = 2048, kOut = 1024;

struct Layers : nn::Layer {
  nn::Linear first{kIn, kHidden}, second{kHidden, kHidden}, last{kHidden, kOut};
  Tensor forward(const Tensor& x) override { return last(relu(second(relu(first(x))))); }
  void members(nn::Members& m) override { m("first", first), m("second", second), m("last", last); }
};

struct Net : nn::ModuleActor<Layers> {
  Tensor loss(Tensor x, Tensor y) { return cross_entropy(net(x), y); }
  static constexpr auto remote = methods<&Net::loss>;
};

}  // namespace

int main(int argc, char** argv) {
  std::string timeline;
  bench::Bench bench("bench_ddp", "Times a data-parallel training step; start it with troupe run -n 2.", argc,
                     argv, [&](tools::Flags& flags) {
                       flags.output("--timeline", timeline, "picture of forward and backward (SVG)");
                     });
  if (bench.exit_code) return *bench.exit_code;
  return launch(hosting<Net>(), [&](Cluster& cluster) {
    const auto names = cluster.workers();
    if (names.size() < 2)
      throw_invalid("[bench] bench_ddp needs 2 workers, got " + std::to_string(names.size()));
    if (!LaunchEnvironment::read()) bench.set_placement("in-process");
    Generator generator(0);
    const Tensor x = randn({kBatch, kIn}, generator);
    std::vector<int64_t> classes(kBatch);
    for (auto& c : classes) c = static_cast<int64_t>(generator.below(static_cast<uint64_t>(kOut)));
    const Tensor y = tensor(classes);

    double single = 0;
    {
      Layers alone;
      optim::Adam adam(alone.parameters(), {});
      const auto step = [&] {
        adam.zero_grad();
        cross_entropy(alone(x), y).backward();
        adam.step();
      };
      single = bench.median_us(step, 10, 2);
      bench.emit("data_parallel_single_step_us", single, "us", {{"batch", kBatch}});
    }
    const Group group(cluster, {names[0], names[1]});
    parallel::DataParallel<Net> net(cluster.here(), group);
    optim::Distributed<optim::Adam> adam(net, {});
    const auto step = [&] {
      autograd::Context context(cluster);
      const Tensor loss = net.mean<&Net::loss>(split(x), split(y)).get();
      context.backward(loss);
      adam.step(context);
    };
    const double us = bench.median_us(step, 20, 3);
    bench.emit("data_parallel_step_us", us, "us",
               {{"ranks", 2}, {"batch", kBatch}, {"speedup", single / us}});
    if (timeline.empty()) return;
    const parallel::DataParallelOptions small{.buckets = {.others = 8 << 20}};  // one for each weight
    parallel::DataParallel<Net> shown(cluster.here(), group, small);
    const auto pass = [&] {
      autograd::Context context(cluster);
      context.backward(shown.mean<&Net::loss>(split(x), split(y)).get());
    };
    for (int i = 0; i < 3; ++i) pass();
    Profile profile(cluster);
    pass();
    tools::write_trace(timeline, profile.end(),
                       "A step of two replicas, forward and backward, and its buckets");
  });
}
