// Stages of parts on the simulated network: messages late and lost, and ranks that die at any event of a
// step.
#include <catch2/catch.hpp>

#include <functional>
#include <optional>

#include "actors/worker/worker.h"
#include "parallel/pipeline/pipelines.h"
#include "parallel/sharded/sharded.h"
#include "parallel/tensor/linear.h"
#include "rref/ref_table.h"
#include "tests/support/near.h"
#include "tests/support/seeds.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;
using parallel::Per;
using parallel::Shard;
using parallel::Sharded;
using testing::seeds;

namespace {

Tensor noise(const Shape& shape, uint64_t seed) {
  Generator generator(seed);
  return ops::randn(shape, generator);
}

// A part that ends where the ranks sum, and one that is whole on all of them.
struct Cut : nn::Module {
  Cut(const Group& tp, int64_t width) : up(tp, width, 10), down(tp, 10, width) {}
  tp::Part operator()(const Tensor& x) { return down(ops::tanh(up(x))); }
  void members(nn::Members& m) override { m("up", up), m("down", down); }
  tp::ColumnLinear up;
  tp::RowLinear down;
};
struct SimNet : nn::Module {
  SimNet(const Group& tp, int64_t width)
      : cut(tp, width), plain(width, width), scale(noise({width}, 3).requires_grad_()) {}
  Task<Tensor> operator()(Tensor x) {
    x = x * scale + co_await cut(x);
    co_return co_await plain(x);
  }
  void members(nn::Members& m) override { m("cut", cut), m("plain", plain), m("scale", scale); }
  Sharded<Cut> cut;
  Sharded<nn::Linear> plain;
  Tensor scale;
};
struct SimStage : nn::ModuleActor<SimNet> {
  SimStage(Group tp, int64_t width) : ModuleActor(tp, width) {
    for (auto& [name, p] : net.named_parameters())  // copies are equal
      p.detach().copy_(noise(p.shape(), std::hash<std::string>()(name)) * 0.3);
  }
  Task<Tensor> forward(Tensor x) { return net(std::move(x)); }
  Tensor loss(Tensor x, Tensor y) { return ops::mse_loss(x, y); }
  static constexpr auto remote = methods<&SimStage::forward, &SimStage::loss>;
};

// Two stages of two replicas, of `tp` ranks each.
struct SimPipelines {
  SimPipelines(uint64_t seed, size_t tp, const parallel::PipelineOptions& options, int64_t w = 6)
      : width(w), ranks(4 * tp), cluster(seed, static_cast<int>(ranks) + 1, hosting<SimStage>()) {
    const Here here(internal::rref::RefTable::of(cluster.worker(0)));
    const MeshPoints points({{"dp", 2}, {"pp", 2}, {"tp", tp}});
    std::vector<AnyRef> actors;
    for (size_t i = 0; i < ranks; ++i) {
      std::vector<Place> names;
      for (size_t t = 0; t < tp; ++t) names.emplace_back("w" + std::to_string(1 + i / tp * tp + t));
      actors.push_back(cluster.here(0).spawn<SimStage>(1 + i, Group(cluster.worker(0), names, "tp"), width));
    }
    train.emplace(here, points, actors, parallel::stage<&SimStage::forward>().with_loss<&SimStage::loss>(),
                  options, parallel::PipelinesDims());
    optimizer.emplace(actors, optim::SGDOptions{.lr = 0.1});
  }
  // At that event the victim dies.
  template <class T>
  Result<T> await(const Future<T>& future) {
    while (!future.is_ready()) {
      if (events++ == dies_at) cluster.network().crash(victim);
      if (!cluster.step() && !future.is_ready()) throw std::logic_error("the future is never ready");
    }
    return *future.peek();
  }
  // The error, if there is one.
  std::optional<Error> step(uint64_t number) {
    autograd::Context context(cluster.worker(0));
    const auto result =
        await(train->step_async(Value(noise({8, width}, number)), Value(noise({8, width}, number + 100))));
    if (!result.ok()) return result.error();
    losses.push_back(result.value().loss);
    const auto stepped = await(optimizer->step_async(context));
    if (!stepped.ok()) return stepped.error();
    return {};
  }
  // But of the victim.
  void nothing_left_here(bool died) {
    optimizer.reset(), train.reset();
    cluster.settle();
    for (size_t w = 0; w <= ranks; ++w) {
      if (died && "w" + std::to_string(w) == victim) continue;
      auto m = cluster.worker(w).metrics();
      for (const char* counter : {"contexts", "send_nodes", "receive_nodes", "backward_passes", "collectives",
                                  "early_collectives"}) {
        INFO("worker " << w << ", " << counter);
        REQUIRE(m[counter] == 0);
      }
    }
  }
  uint64_t sent(const std::string& from, const std::string& to) {
    return cluster.network().counters(from, to).bytes;
  }
  const int64_t width;
  const size_t ranks;
  SimulatedCluster cluster;
  std::optional<parallel::Pipelines> train;
  std::optional<optim::Distributed<optim::SGD>> optimizer;
  std::vector<double> losses;
  std::string victim;
  int64_t events = 0, dies_at = -1;
};

parallel::PipelineOptions options_of(uint64_t seed) {
  const char* schedules[] = {"1f1b", "credits(2)", "zb-h1", "gpipe"};
  return {.schedule = schedules[seed % 4],
          .micro_batches = 3,
          .shard = Shard::all,
          .gather = seed / 4 % 2 ? Per::step : Per::use,
          .reduce = seed / 8 % 2 ? Per::step : Per::use};
}

}  // namespace

TEST_CASE(
    "stages of parts have the losses of whole stages in whatever order messages come, and if some are lost") {
  for (uint64_t seed = 1; seed < 1 + seeds(16); ++seed) {
    const size_t tp = 1 + seed % 2;
    CAPTURE(seed, tp);
    std::vector<double> want;
    for (const Shard shard : {Shard::none, Shard::all}) {
      parallel::PipelineOptions options = options_of(seed / 2);
      options.shard = shard;
      SimPipelines world(seed, tp, options);
      if (shard == Shard::all)
        world.cluster.network().set_faults(
            {.delay = 1ms, .jitter = seed % 2 ? 3ms : 0ms, .drop = seed % 3 ? 0.02 : 0, .resend = 20ms});
      for (uint64_t i = 0; i < 3; ++i) {
        const auto error = world.step(i);
        if (error) FAIL(error->what());
      }
      if (want.empty()) want = world.losses;
      for (size_t i = 0; i < want.size(); ++i) CHECK(world.losses[i] == Approx(want[i]).epsilon(1e-5));
      world.nothing_left_here(false);
    }
  }
}

TEST_CASE("replicas of a stage send each parameter as often as micro-batches and the step say") {
  for (uint64_t way = 0; way < 4; ++way) {
    parallel::PipelineOptions options = options_of(4 * way);  // 1f1b
    const auto m = options.micro_batches;
    const int want = (options.gather == Per::use ? 2 * m : 1) + (options.reduce == Per::use ? m : 1);
    SimPipelines world(1, 1, options, 512);
    if (const auto error = world.step(0)) FAIL(error->what());
    const uint64_t before = world.sent("w1", "w3");
    if (const auto error = world.step(1)) FAIL(error->what());
    const double parameters = 512 * 512 + 512 + 2 * 10 * 512 + 10 + 512;
    INFO("once: " << (options.gather == Per::step) << (options.reduce == Per::step));
    CHECK(double(world.sent("w1", "w3") - before) / (4 * parameters / 2) == Approx(want).epsilon(0.02));
    world.nothing_left_here(false);
  }
}

TEST_CASE("a rank that dies at any event of a step of parts in stages is named, and leaves nothing") {
  int died = 0;
  for (uint64_t seed = 1; seed < 1 + seeds(100); ++seed) {
    const size_t tp = seed % 5 ? 1 : 2;
    const auto make = [&](SimPipelines& world) {
      if (seed % 2)
        world.cluster.network().set_faults({.delay = 1ms, .jitter = 2ms, .drop = 0.01, .resend = 20ms});
      world.victim = "w" + std::to_string(1 + seed % world.ranks);
      if (const auto error = world.step(0)) FAIL(error->what());
      world.events = 0;
    };
    int64_t events = 0;
    {
      SimPipelines world(seed, tp, options_of(seed / 2));
      make(world);
      CHECK_FALSE(world.step(1));
      events = world.events;
    }
    SimPipelines world(seed, tp, options_of(seed / 2));
    make(world);
    world.dies_at = static_cast<int64_t>(Generator(seed).below(static_cast<uint64_t>(events)));
    const Duration before = world.cluster.now();
    const auto error = world.step(1);
    CAPTURE(seed, tp, world.dies_at, events, world.victim);
    if (error) {
      ++died;
      CAPTURE(error->what());
      CHECK(error->kind() == ErrorKind::disconnected);
      CHECK(error->worker() == world.victim);
      CHECK(world.cluster.now() - before < 30s);
    }
    world.nothing_left_here(true);
  }
  CHECK(died > 0);
}
