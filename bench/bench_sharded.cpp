// Training steps of a perceptron whose state, or whose parameters too, two replicas divide (ZeRO stages 1 and
// 3), and of one that is cut over two ranks: `troupe run -n 2 bench_sharded`.
#include "bench/measure.h"
#include "bench/wide_mlp.h"
#include "troupe/replicas.h"
#include "troupe/tensor_parallel.h"
#include "troupe/troupe.h"
using namespace troupe;
using parallel::split;

namespace {

using bench::kHidden, bench::kIn, bench::kOut;

struct Parts : nn::Module {
  Parts() { bench::start(first.module, 0), bench::start(second.module, 1), bench::start(last.module, 2); }
  Task<Tensor> operator()(Tensor x) {
    x = co_await first(x);
    x = co_await second(relu(x));
    co_return co_await last(relu(x));
  }
  void members(nn::Members& m) override { m("first", first), m("second", second), m("last", last); }
  parallel::Sharded<nn::Linear> first{kIn, kHidden}, second{kHidden, kHidden}, last{kHidden, kOut};
};

struct Replica : nn::ModuleActor<Parts> {
  Task<Tensor> loss(Tensor x, Tensor y) {
    const Tensor logits = co_await net(x);
    co_return cross_entropy(logits, y);
  }
  static constexpr auto remote = methods<&Replica::loss>;
};

// Layer number `layer`, from 0, which each rank cuts.
nn::Linear whole(uint32_t layer, int64_t in, int64_t out) {
  nn::Linear linear(in, out);
  bench::start(linear, layer);
  return linear;
}

struct Cut : nn::Module {
  explicit Cut(const Group& tp)
      : first(tp, whole(0, kIn, kHidden)),
        second(tp, whole(1, kHidden, kHidden)),
        last(tp, whole(2, kHidden, kOut)) {}
  void members(nn::Members& m) override { m("first", first), m("second", second), m("last", last); }
  tp::ColumnLinear first;
  tp::RowLinear second;
  tp::Head last;
};

struct Rank : nn::ModuleActor<Cut> {
  explicit Rank(Mesh mesh) : ModuleActor(mesh["tp"]) {}
  Task<Tensor> loss(Tensor x, Tensor y) {
    const tp::Part part = net.second(relu(net.first(x)));
    x = co_await part;
    co_return co_await net.last.cross_entropy(net.last(relu(x)), y);
  }
  static constexpr auto remote = methods<&Rank::loss>;
};

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_sharded",
                     "Times steps of sharded and tensor-parallel training; start it with troupe run -n 2.",
                     argc, argv);
  if (bench.exit_code) return *bench.exit_code;
  return launch(hosting<Replica, Rank>(), [&](Cluster& cluster) {
    const auto names = cluster.workers();
    if (names.size() < 2)
      throw_invalid("[bench] bench_sharded needs 2 workers, got " + std::to_string(names.size()));
    if (!LaunchEnvironment::read()) bench.set_placement("in-process");
    const bench::Batch batch;
    const auto report = [&](const char* name, const std::function<Tensor()>& step) {
      const bench::TimedSteps steps(bench, step, 10);
      bench.emit(name, steps.us, "us", {{"ranks", 2}, {"batch", static_cast<double>(bench::kBatch)}},
                 steps.losses);
    };
    for (const auto& [name, shard] :
         {std::pair{"zero1_step_us", parallel::Shard::state}, {"zero3_step_us", parallel::Shard::all}}) {
      const parallel::DataParallelOptions options{.shard = shard};
      parallel::DataParallel<Replica> net(cluster.here(), Group(cluster, {names[0], names[1]}), options);
      optim::Distributed<optim::Adam> adam(net, {});
      report(name, [&] {
        autograd::Context context(cluster);
        const Tensor loss = net.mean<&Replica::loss>(split(batch.x), split(batch.y)).get();
        context.backward(loss);
        adam.step(context);
        return loss;
      });
    }
    const auto ranks = parallel::spawn<Rank>(cluster.here(), Mesh(cluster, {{"tp", 2}}));
    optim::Distributed<optim::Adam> adam({ranks.actors().begin(), ranks.actors().end()}, {});
    report("tensor_parallel_step_us", [&] {
      autograd::Context context(cluster);
      const Tensor loss = parallel::same_on_all(all(ranks.call<&Rank::loss>(batch.x, batch.y)).get());
      context.backward(loss);
      adam.step(context);
      return loss;
    });
  });
}
