// What lies under what, on the simulated clock: gathers of parts under the layers before them, forward and
// back.
#include <catch2/catch.hpp>

#include <deque>
#include <optional>

#include "parallel/data/gradient_reducer.h"
#include "parallel/pipeline/pipelines.h"
#include "parallel/sharded/sharded.h"
#include "rref/ref_table.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr int64_t kLayerWidth = 64;
constexpr size_t kLayers = 4;
constexpr int kHops = 10;  // there and back, which stand for a layer's time: both take no processor

struct Elsewhere : Actor {
  void there() {}
  static constexpr auto remote = methods<&Elsewhere::there>;
};

Task<Unit> some_time(RRef<Elsewhere> other) {
  for (int i = 0; i < kHops; ++i) co_await other.call<&Elsewhere::there>();
  co_return Unit();
}

// Takes its time backward.
struct Takes : autograd::Function<Takes> {
  struct Ctx : autograd::FunctionCtx {
    RRef<Elsewhere> other;
  };
  static Tensor forward(Ctx& ctx, Tensor x, RRef<Elsewhere> other) {
    ctx.other = other;
    return x * 1;
  }
  static Task<Tensors> backward(Ctx& ctx, Tensors grads) {
    for (int i = 0; i < kHops; ++i) co_await ctx.other.call<&Elsewhere::there>();
    co_return {grads[0], Tensor()};
  }
};

struct LayersInTurn : nn::Module {
  LayersInTurn() {
    for (size_t i = 0; i < kLayers; ++i) layers.emplace_back(kLayerWidth, kLayerWidth);
  }
  void members(nn::Members& m) override {
    for (size_t i = 0; i < kLayers; ++i) m(std::to_string(i), layers[i]);
  }
  std::deque<parallel::Sharded<nn::Linear>> layers;
};

struct InTurn : nn::ModuleActor<LayersInTurn> {
  explicit InTurn(RRef<Elsewhere> where) : other(where) {}
  Task<Tensor> forward(Tensor x) {
    for (auto& layer : net.layers) {
      x = Takes::apply(co_await layer(x), other);
      co_await some_time(other);
    }
    co_return x;
  }
  Tensor loss(Tensor x, Tensor y) { return ops::mse_loss(x, y); }
  RRef<Elsewhere> other;
  static constexpr auto remote = methods<&InTurn::forward, &InTurn::loss>;
};

struct Replicas {
  explicit Replicas(parallel::Per gather) : cluster(1, 5, hosting<InTurn, Elsewhere>()) {
    std::vector<AnyRef> actors;
    for (size_t r = 0; r < 2; ++r)
      actors.push_back(cluster.here(0).spawn<InTurn>(1 + r, cluster.here(0).spawn<Elsewhere>(3 + r)));
    train.emplace(Here(internal::rref::RefTable::of(cluster.worker(0))), MeshPoints({{"pp", 1}, {"dp", 2}}),
                  actors, parallel::stage<&InTurn::forward>().with_loss<&InTurn::loss>(),
                  parallel::PipelineOptions{
                      .micro_batches = 1, .shard = parallel::Shard::all, .gather = gather, .timeout = 1h},
                  parallel::PipelinesDims());
    optimizer.emplace(actors, optim::SGDOptions{.lr = 0.1});
    await(train->ready());
    cluster.network().set_faults({.delay = 1ms, .bytes_per_second = 1e6});
  }
  template <class T>
  T await(const Future<T>& future) {
    while (!future.is_ready())
      if (!cluster.step() && !future.is_ready()) throw std::logic_error("the future is never ready");
    return future.get();
  }
  // How long it takes, in milliseconds.
  template <class F>
  double time(const F& f) {
    const Duration before = cluster.now();
    f();
    return std::chrono::duration<double, std::milli>(cluster.now() - before).count();
  }
  double forward() {
    return time([&] { await(train->forward_async(Value(x))); });
  }
  double step() {
    autograd::Context context(cluster.worker(0));
    const double took = time([&] { await(train->step_async(Value(x), Value(x))); });
    await(optimizer->step_async(context));
    return took;
  }
  SimulatedCluster cluster;
  std::optional<parallel::Pipelines> train;
  std::optional<optim::Distributed<optim::SGD>> optimizer;
  const Tensor x = ones({2, kLayerWidth});
};

// A parameter of 16 KiB for each layer, in a bucket of its own.
struct Bucketed : Actor {
  explicit Bucketed(RRef<Elsewhere> where) : other(where) {
    for (size_t i = 0; i < kLayers; ++i) weights.push_back(full({4096}, 0.01).requires_grad_());
  }
  void join(Group group) {
    reducer.emplace(group, weights,
                    parallel::ReducerOptions{.buckets = {.first = 16 << 10, .others = 16 << 10}});
  }
  Task<double> backward(Tensor x) {
    const autograd::Context own;
    for (const Tensor& w : weights) x = Takes::apply(ops::mean(w) * x, other);
    const auto running = reducer->backward(x, 1);
    co_return co_await running;
  }
  RRef<Elsewhere> other;
  Tensors weights;
  std::optional<parallel::GradientReducer> reducer;
  static constexpr auto remote = methods<&Bucketed::join, &Bucketed::backward>;
};

}  // namespace

TEST_CASE("parts are gathered under the layers before them") {
  // Half of a part goes each way: 64 * 65 / 2 floats, 8.3 ms and the delay; a layer takes 20 ms of delays.
  const double gather = 9.3, layer = 2.0 * kHops;
  Replicas world(parallel::Per::use);
  const double first = world.forward(), then = world.forward();
  CAPTURE(first, then);
  CHECK(first >= kLayers * (gather + layer));  // the order of the parts is not known yet
  CHECK(first <= 1.25 * kLayers * (gather + layer));
  CHECK(then >= gather + kLayers * layer);
  CHECK(then <= 1.25 * (gather + kLayers * layer));
}

TEST_CASE("a step waits for the first gather and the last sum, and for what no layer hides") {
  const double part = 8.3, layer = 2.0 * kHops;
  Replicas world(parallel::Per::use);
  const double first = world.step(), then = world.step();
  CAPTURE(first, then);
  // Both ways the gather of the first part, and the layers; then the sum of the last part.
  const double least = 2 * (part + kLayers * layer) + part;
  CHECK(then >= least);
  CHECK(then <= 1.25 * least);
  CHECK(first - then >= 0.75 * (kLayers - 1) * part);
}

TEST_CASE("buckets are summed under the rest of the backward pass") {
  SimulatedCluster cluster(1, 5, hosting<Bucketed, Elsewhere>());
  std::vector<RRef<Bucketed>> members;
  for (size_t r = 0; r < 2; ++r)
    members.push_back(cluster.here(0).spawn<Bucketed>(1 + r, cluster.here(0).spawn<Elsewhere>(3 + r)));
  const Group group(members);
  for (auto& m : members) cluster.await(m.call<&Bucketed::join>(group)).value();
  cluster.network().set_faults({.delay = 1ms, .bytes_per_second = 1e6});
  const auto pass = [&] {
    const Duration before = cluster.now();
    std::vector<Future<double>> asked;
    for (auto& m : members) asked.push_back(m.call<&Bucketed::backward>(tensor(1.0F)));
    for (auto& a : asked) (void)cluster.await(a).value();
    return std::chrono::duration<double, std::milli>(cluster.now() - before).count();
  };
  pass();
  const double took = pass(), bucket = 16.4 + 1, layer = 2.0 * kHops;
  CAPTURE(took);
  CHECK(took >= kLayers * layer + bucket);  // of the last one nothing is hidden
  CHECK(took <= 1.25 * (kLayers * layer + bucket));
}
