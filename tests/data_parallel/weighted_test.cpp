// Losses that ignore targets: the mean over replicas is that of one process, whatever each of them ignores.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <limits>
#include <optional>

#include "tests/data_parallel/parts.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "troupe/pipeline.h"
#include "troupe/replicas.h"
#include "troupe/tensor_parallel.h"

using namespace troupe;
using namespace troupe::parallel;
using Catch::Contains;
using testing::difference;
using testing::error_of;
using testing::kWays;
using testing::nothing_left;
using testing::wave;

namespace {

constexpr int64_t kIgnored = -100;

// Targets of rows 0 to 6; those of the first three, so of the first replica of two, and the last are ignored.
const Tensor kTargets = tensor({kIgnored, kIgnored, kIgnored, int64_t{1}, int64_t{0}, int64_t{2}, kIgnored});

double count(const Tensor& y) { return ops::sum((y != kIgnored).to(float64)).item(); }

struct Net : nn::Module {
  Net() {
    part.module.load_state_dict({{"weight", wave({3, 4}, 1, float64)}, {"bias", wave({3}, 2, float64)}});
  }
  Task<Tensor> operator()(Tensor x) { return part(std::move(x)); }
  void members(nn::Members& m) override { m("part", part); }
  Sharded<nn::Linear> part{4, 3, true, float64};
};
struct Learner : nn::ModuleActor<Net> {
  Learner() = default;
  Learner(Mesh) {}  // NOLINT: as spawn() calls it
  Task<Tensor> forward(Tensor x) { return net(std::move(x)); }
  Tensor loss_of(Tensor out, Tensor y) { return cross_entropy(out, y); }
  Task<std::pair<Tensor, double>> loss(Tensor x, Tensor y) {
    const Tensor out = co_await net(x);
    co_return std::pair(cross_entropy(out, y), count(y));
  }
  std::pair<Tensor, double> odd(Tensor x, double weight) { return {ops::sum(x), weight}; }
  static constexpr auto remote = methods<&Learner::loss, &Learner::odd, &Learner::forward, &Learner::loss_of>;
};

struct RankByRank : Actor {
  void join(Group group) { reducer.emplace(group, net.parameters()); }
  Task<double> step(Tensor x, Tensor y, double weight) {
    const autograd::Context own;
    const auto passing = reducer->backward(cross_entropy(net.part.module(x), y), weight);
    const double loss = co_await passing;
    gradient = autograd::context_gradient(net.parameters()[0]);
    co_return loss;
  }
  Tensor last() { return gradient; }
  Net net;
  Tensor gradient;
  std::optional<GradientReducer> reducer;
  static constexpr auto remote = methods<&RankByRank::join, &RankByRank::step, &RankByRank::last>;
};

}  // namespace

TEST_CASE("a mean that says what it counts for is that of one process, with replicas that have no target") {
  const Tensor x = wave({7, 4}, 3, float64);
  Net whole;
  const Tensor want = cross_entropy(whole.part.module(x), kTargets);
  autograd::backward(want);
  for (const auto& way : kWays)
    for (const size_t n : {1, 2, 3}) {
      INFO(word(way.shard) << " on " << n);
      const auto cluster = Cluster::in_process(3, hosting<Learner>());
      const auto workers = cluster->workers();
      const Group group(*cluster, {workers.begin(), workers.begin() + std::ptrdiff_t(n)});
      const DataParallelOptions options{.shard = way.shard, .gather = way.gather, .reduce = way.reduce};
      DataParallel<Learner> net(cluster->here(), group, options);
      optim::Distributed<optim::SGD> optimizer(net, {.lr = 1});
      {
        autograd::Context step(*cluster);
        const Tensor loss = net.mean<&Learner::loss>(split(x), split(kTargets)).get();
        CHECK(loss.item() == Approx(want.item()).epsilon(1e-12));
        step.backward(loss);
        optimizer.step(step);
      }
      const StateDict state = net.state_dict().get();
      for (const auto& [name, p] : whole.named_parameters())
        CHECK(difference(state.at(name), p.detach() - p.grad(), 1e-9, 1e-12) == "");
      for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN()})
        CHECK_THAT(error_of([&] { net.mean<&Learner::odd>(split(x), bad).get(); }).what(),
                   Contains("odd of a replica says that its mean counts for " + fmt::format("{}", bad)));
      CHECK_THAT(error_of([&] { net.mean<&Learner::odd>(split(x), 0.0).get(); }).what(),
                 Contains("counts for nothing on any replica"));
      nothing_left(*cluster);
    }
}

TEST_CASE("rank by rank, the number of targets in the place of rows gives the mean of one process") {
  const Tensor x = wave({7, 4}, 3, float64);
  Net whole;
  const Tensor want = cross_entropy(whole.part.module(x), kTargets);
  autograd::backward(want);
  const auto cluster = Cluster::in_process(2, hosting<RankByRank>());
  const std::vector<RRef<RankByRank>> members{cluster->spawn<RankByRank>("w0"),
                                              cluster->spawn<RankByRank>("w1")};
  for (const auto& m : members) m.call<&RankByRank::join>(Group(members)).get();
  const Split xs = split(x), ys = split(kTargets);
  std::vector<Future<double>> steps;
  for (size_t r = 0; r < 2; ++r)
    steps.push_back(members[r].call<&RankByRank::step>(xs.part(r, 2), ys.part(r, 2), count(ys.part(r, 2))));
  for (const double loss : all(steps).get()) CHECK(loss == Approx(want.item()).epsilon(1e-12));
  for (const auto& m : members)
    CHECK(difference(m.call<&RankByRank::last>().get(), whole.parameters()[0].grad(), 1e-9, 1e-12) == "");
}

TEST_CASE(
    "weights of micro-batches give the mean of one process, with replicas of pipelines that have no target") {
  const Tensor x = wave({8, 4}, 3, float64), y = tensor({kIgnored, kIgnored, kIgnored, kIgnored, int64_t{1},
                                                         int64_t{0}, int64_t{2}, kIgnored});
  Net whole;
  const Tensor want = cross_entropy(whole.part.module(x), y);
  autograd::backward(want);
  for (const auto& way : kWays) {
    INFO(word(way.shard));
    const auto cluster = Cluster::in_process(3, hosting<Learner>());
    const Mesh mesh(*cluster, {{"dp", 2}, {"pp", 1}}, {1, 2});
    const auto model = parallel::spawn<Learner>(cluster->here(), mesh);
    Pipelines train(cluster->here(), model, stage<&Learner::forward>().with_loss<&Learner::loss_of>(),
                    {.micro_batches = 2, .shard = way.shard, .gather = way.gather, .reduce = way.reduce});
    optim::Distributed<optim::SGD> optimizer(model, {.lr = 1});
    autograd::Context step(*cluster);
    const StepOptions weights{.weights = {0, 0, 2, 1}};
    if (way.shard == Shard::all) {
      CHECK_THAT(error_of([&] { train.step(Value(x), Value(y), weights); }).what(),
                 Contains("micro-batch 0 has a weight of 0 on replica 0 and of 2 on replica 1"));
      continue;
    }
    const StepResult result = train.step(Value(x), Value(y), weights);
    CHECK(result.loss == Approx(want.item()).epsilon(1e-12));
    CHECK(result.weight == 3);
    optimizer.step(step);
    for (const auto& r : model.actors())
      for (const auto& [name, p] : whole.named_parameters())
        CHECK(difference(nn::remote_state_dict(r).get().at(name), p.detach() - p.grad(), 1e-9, 1e-12) == "");
  }
}
