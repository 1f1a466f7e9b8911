// A training step of a compute-bound perceptron: in one process, and by two replicas of it, each with half of
// the batch: `troupe run -n 2 bench_ddp`.
#include "bench/measure.h"
#include "bench/wide_mlp.h"
#include "parallel/data/data_parallel.h"
#include "tools/draw/trace_picture.h"
#include "tools/flags/flags.h"
#include "troupe/profile.h"
#include "troupe/troupe.h"
using namespace troupe;
using parallel::split;

namespace {

using bench::kHidden, bench::kIn, bench::kOut;

struct Layers : nn::Layer {
  Layers() { bench::start(first, 0), bench::start(second, 1), bench::start(last, 2); }
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
    const auto rows = static_cast<double>(bench::kBatch);
    const bench::Batch batch;
    double single = 0;
    {
      Layers alone;
      optim::Adam adam(alone.parameters(), {});
      const auto step = [&] {
        adam.zero_grad();
        const Tensor loss = cross_entropy(alone(batch.x), batch.y);
        loss.backward();
        adam.step();
        return loss;
      };
      const bench::TimedSteps steps(bench, step, 10);
      single = steps.us;
      bench.emit("data_parallel_single_step_us", single, "us", {{"batch", rows}}, steps.losses);
    }
    const Group group(cluster, {names[0], names[1]});
    parallel::DataParallel<Net> net(cluster.here(), group);
    optim::Distributed<optim::Adam> adam(net, {});
    const auto step = [&] {
      autograd::Context context(cluster);
      const Tensor loss = net.mean<&Net::loss>(split(batch.x), split(batch.y)).get();
      context.backward(loss);
      adam.step(context);
      return loss;
    };
    const bench::TimedSteps steps(bench, step, 20);
    bench.emit("data_parallel_step_us", steps.us, "us",
               {{"ranks", 2}, {"batch", rows}, {"speedup", single / steps.us}}, steps.losses);
    if (timeline.empty()) return;
    const parallel::DataParallelOptions small{.buckets = {.others = 8 << 20}};  // one for each weight
    parallel::DataParallel<Net> shown(cluster.here(), group, small);
    const auto pass = [&] {
      autograd::Context context(cluster);
      context.backward(shown.mean<&Net::loss>(split(batch.x), split(batch.y)).get());
    };
    for (int i = 0; i < 3; ++i) pass();
    Profile profile(cluster);
    pass();
    tools::write_trace(timeline, profile.end(),
                       "A step of two replicas, forward and backward, and its buckets");
  });
}
