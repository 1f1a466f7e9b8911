// Every schedule with every axis on the simulated network: messages that are late or lost, ranks that die.
#include <catch2/catch.hpp>

#include <functional>
#include <optional>

#include "actors/worker/worker.h"
#include "parallel/pipeline/pipelines.h"
#include "parallel/pipeline/schedule/choose_policy.h"
#include "parallel/tensor/linear.h"
#include "rref/ref_table.h"
#include "tests/support/near.h"
#include "tests/support/seeds.h"
#include "troupe/context_parallel.h"
#include "troupe/experts.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;
using testing::seeds;

namespace {

constexpr int64_t kRows = 4, kTime = 4, kWidth = 4;
const char* const kAxes[] = {"tp", "heads", "ring", "ep", "dp"};

// A layer whose ranks meet along one axis; then each position adds all before it, also those of slices
// before.
struct AxisNet : nn::Module {
  AxisNet(const Group& g, const std::string& axis) : ranks(g), sequence(kTime, g.size()) {
    if (axis == "tp") {
      up.emplace(g, kWidth, 6, tp::LinearOptions{.dtype = float64});
      down.emplace(g, 6, kWidth, tp::LinearOptions{.dtype = float64});
    }
    if (axis == "heads" || axis == "ring")
      attention.emplace(cp::Ranks{g, {}, g}, kWidth, 2, nn::MultiheadAttentionOptions{.dtype = float64},
                        axis == "ring" ? cp::Way::ring : cp::Way::heads);
    if (axis == "ep")
      experts.emplace(g, kWidth, 6, 3, parallel::ExpertsOptions{.top_k = 2, .dtype = float64});
    for (auto& [name, p] : named_parameters()) {
      Generator generator(std::hash<std::string>()(name));
      p.detach().copy_(ops::randn(p.shape(), generator) * 0.3);
    }
  }
  Task<Tensor> operator()(Tensor x) {
    if (up) {
      const tp::Part part = (*down)(ops::tanh((*up)(x)));
      co_return x + co_await part;
    }
    if (attention) {
      const cp::Sequence times(x.size(1), ranks.size());
      Tensor own = cp::cut(x, ranks, 1, times);
      Task<Tensor> attending = (*attention)(own, times);
      own = own + co_await std::move(attending);
      const auto joining = cp::join(own, ranks, 1, times);
      co_return co_await joining;
    }
    if (experts) {
      Tensor own = tp::cut(x, ranks, 0);
      Task<parallel::Mixture> mixing = (*experts)(own);
      const parallel::Mixture mixed = co_await std::move(mixing);
      const auto joining = tp::join(own + mixed.y, ranks, 0);
      co_return co_await joining;
    }
    co_return ops::tanh(x * scale);
  }
  void members(nn::Members& m) override {
    if (up) m("up", *up), m("down", *down);
    if (attention) m("attention", *attention);
    if (experts) m("experts", *experts);
    m("scale", scale);
  }
  Group ranks;
  cp::Sequence sequence;
  std::optional<tp::ColumnLinear> up;
  std::optional<tp::RowLinear> down;
  std::optional<cp::Attention> attention;
  std::optional<parallel::Experts> experts;
  Tensor scale = ones({kWidth}, float64).requires_grad_();
};

struct AxisStage : nn::ModuleActor<AxisNet> {
  AxisStage(Group ranks, std::string axis) : ModuleActor(ranks, axis) {}
  Task<std::tuple<Tensor, Tensors>> carrying(Tensor x, Tensors before) {
    Task<Tensor> running = net(std::move(x));
    Tensor y = ops::cumsum(co_await std::move(running), 1);
    if (!before.empty()) y = y + before[0];
    co_return {y, {ops::narrow(y, 1, y.size(1) - 1, 1)}};
  }
  Task<Tensor> forward(Tensor x) {
    Task<Tensor> running = net(std::move(x));
    co_return ops::cumsum(co_await std::move(running), 1);
  }
  Tensor loss(Tensor x, Tensor y) { return ops::mse_loss(x, y); }
  static constexpr auto remote = methods<&AxisStage::carrying, &AxisStage::forward, &AxisStage::loss>;
};

struct Way {
  std::string schedule;
  int chunks = 1, slices = 1;
};
const Way kWays[] = {{"gpipe"},         {"1f1b"},           {"zb-h1"},         {"zb-h2"},
                     {"credits(2)"},    {"interleaved", 2}, {"looped-bfs", 2}, {"zb-v", 2},
                     {"dualpipe-v", 2}, {"1f1b", 1, 2},     {"zb-h1", 1, 2},   {"zb-v", 2, 2}};

// As many stages as chunks, on two workers' rows of two ranks.
struct AxisPipelines {
  AxisPipelines(uint64_t seed, const std::string& axis, const Way& way)
      : stages(static_cast<size_t>(2 * way.chunks)),
        cluster(seed, static_cast<int>(2 * stages) + 1, hosting<AxisStage>()) {
    const bool dp = axis == "dp";
    std::vector<AnyRef> actors;
    for (size_t s = 0; s < stages; ++s)
      for (size_t r = 0; r < 2; ++r) {
        std::vector<Place> names;
        for (size_t i = dp ? r : 0; i < (dp ? r + 1 : 2); ++i)
          names.emplace_back("w" + std::to_string(1 + 2 * s + i));
        const Group ranks(cluster.worker(0), names, "ranks");
        actors.push_back(cluster.here(0).spawn<AxisStage>(1 + 2 * s + r, ranks, axis));
      }
    auto method = way.slices > 1 ? parallel::stage<&AxisStage::carrying>().carries()
                                 : parallel::stage<&AxisStage::forward>();
    train.emplace(
        Here(internal::rref::RefTable::of(cluster.worker(0))),
        MeshPoints({{"pp", stages, static_cast<size_t>(way.chunks), parallel::goes_back(way.schedule)},
                    {dp ? "dp" : "tp", 2}}),
        actors, method.with_loss<&AxisStage::loss>(),
        parallel::PipelineOptions{
            .schedule = way.schedule, .micro_batches = 2, .chunks = way.chunks, .slices = way.slices},
        parallel::PipelinesDims());
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
  std::optional<Error> step() {
    Generator generator(7);
    const Tensor x = ops::randn({kRows, kTime, kWidth}, generator).to(float64);
    const Tensor y = ops::randn({kRows, kTime, kWidth}, generator).to(float64);
    autograd::Context context(cluster.worker(0));
    const auto result = await(train->step_async(Value(x), Value(y)));
    if (!result.ok()) return result.error();
    losses.push_back(result.value().loss);
    const auto stepped = await(optimizer->step_async(context));
    if (!stepped.ok()) return stepped.error();
    return {};
  }
  void nothing_left_here(bool died) {
    optimizer.reset(), train.reset();
    cluster.settle();
    for (size_t w = 0; w <= 2 * stages; ++w) {
      if (died && "w" + std::to_string(w) == victim) continue;
      auto m = cluster.worker(w).metrics();
      for (const char* counter : {"contexts", "send_nodes", "receive_nodes", "backward_passes", "collectives",
                                  "early_collectives"}) {
        INFO("worker " << w << ", " << counter);
        REQUIRE(m[counter] == 0);
      }
    }
  }
  const size_t stages;
  SimulatedCluster cluster;
  std::optional<parallel::Pipelines> train;
  std::optional<optim::Distributed<optim::SGD>> optimizer;
  std::vector<double> losses;
  std::string victim;
  int64_t events = 0, dies_at = -1;
};

// All pairs of them in turn.
std::pair<std::string, Way> pair_of(uint64_t seed) {
  return {kAxes[seed % std::size(kAxes)], kWays[seed % std::size(kWays)]};
}

void set_faults(AxisPipelines& world, uint64_t seed) {
  world.cluster.network().set_faults(
      {.delay = 1ms, .jitter = seed % 2 ? 3ms : 0ms, .drop = seed % 3 ? 0.02 : 0, .resend = 20ms});
}

}  // namespace

TEST_CASE("every schedule with every axis has the losses of 1F1B, whatever messages come late or are lost") {
  std::map<std::pair<std::string, int>, std::vector<double>> want;
  for (uint64_t seed = 1; seed < 1 + seeds(100); ++seed) {
    const auto [axis, way] = pair_of(seed);
    CAPTURE(seed, axis, way.schedule, way.chunks, way.slices);
    const auto run = [&](AxisPipelines& world) {
      for (int i = 0; i < 2; ++i)
        if (const auto error = world.step()) FAIL(error->what());
      world.nothing_left_here(false);
      return world.losses;
    };
    auto& right = want[{axis, way.chunks}];
    if (right.empty()) {
      AxisPipelines calm(seed, axis, {way.chunks > 1 ? "looped-bfs" : "1f1b", way.chunks});
      right = run(calm);
    }
    // Attention of a slice sees that slice alone.
    const bool same = way.slices == 1 || (axis != "heads" && axis != "ring");
    AxisPipelines world(seed, axis, way);
    set_faults(world, seed);
    const auto got = run(world);
    for (size_t i = 0; same && i < right.size(); ++i) CHECK(got[i] == Approx(right[i]).epsilon(1e-9));
  }
}

TEST_CASE(
    "a rank that dies at any event of a step under any schedule with any axis is named, and leaves "
    "nothing") {
  int died = 0;
  for (uint64_t seed = 1; seed < 1 + seeds(100); ++seed) {
    const auto [axis, way] = pair_of(seed);
    CAPTURE(seed, axis, way.schedule, way.chunks, way.slices);
    const auto begun = [&](AxisPipelines& world) {
      set_faults(world, seed);
      world.victim = "w" + std::to_string(1 + seed / 7 % (2 * world.stages));
      if (const auto error = world.step()) FAIL(error->what());
      world.events = 0;
    };
    int64_t events = 0;
    {
      AxisPipelines world(seed, axis, way);
      begun(world);
      CHECK_FALSE(world.step());
      events = world.events;
    }
    AxisPipelines world(seed, axis, way);
    begun(world);
    world.dies_at = static_cast<int64_t>(Generator(seed).below(static_cast<uint64_t>(events)));
    const Duration before = world.cluster.now();
    const auto error = world.step();
    CAPTURE(world.dies_at, events, world.victim);
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
