// Parameters that are frozen and thawed between steps: replicas stay equal, and learn as one process.
#include <catch2/catch.hpp>
#include <optional>
#include <random>

#include "tests/data_parallel/parts.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "troupe/pipeline.h"
#include "troupe/replicas.h"
#include "troupe/tensor_parallel.h"

using namespace troupe;
using namespace troupe::parallel;
using testing::difference;
using testing::kWays;
using testing::nothing_left;
using testing::wave;
using testing::Way;

namespace {

constexpr size_t kLayers = 3;
using Flags = std::vector<int64_t>;  // of the layers: whether they learn

struct Layers : nn::Module {
  Layers() {
    for (size_t i = 0; i < kLayers; ++i)
      layer(i).load_state_dict(
          {{"weight", wave({4, 4}, double(i), float64)}, {"bias", wave({4}, 5, float64)}});
  }
  nn::Linear& layer(size_t i) { return (i == 0 ? first : i == 1 ? second : third).module; }
  void learn(const Flags& flags) {
    for (size_t i = 0; i < kLayers; ++i) layer(i).requires_grad_(flags.at(i) != 0);
  }
  Task<Tensor> operator()(Tensor x) {
    x = co_await first(x);
    x = co_await second(ops::tanh(x));
    co_return co_await third(ops::tanh(x));
  }
  Tensor whole(const Tensor& x) { return third.module(ops::tanh(second.module(ops::tanh(first.module(x))))); }
  void members(nn::Members& m) override { m("first", first), m("second", second), m("third", third); }
  Sharded<nn::Linear> first{4, 4, true, float64}, second{4, 4, true, float64}, third{4, 4, true, float64};
};

struct Learner : nn::ModuleActor<Layers> {
  explicit Learner(Flags flags) { net.learn(flags); }
  Learner(Mesh, Flags flags) : Learner(std::move(flags)) {}  // NOLINT: as spawn() calls it
  void learn(Flags flags) { net.learn(flags); }
  Task<Tensor> forward(Tensor x) { return net(std::move(x)); }
  Tensor loss_of(Tensor y, Tensor target) { return mse_loss(y, target); }
  Task<Tensor> loss(Tensor x, Tensor y) {
    const Tensor out = co_await net(x);
    Tensor l = mse_loss(out, y);
    co_return l;
  }
  static constexpr auto remote =
      methods<&Learner::learn, &Learner::loss, &Learner::forward, &Learner::loss_of>;
};

// Whose ranks learn each by itself.
struct RankByRank : Actor {
  explicit RankByRank(Flags flags) { net.learn(flags); }
  void join(Group group, int64_t shard) {
    reducer.emplace(group, net.parameters(), ReducerOptions{.shard = static_cast<Shard>(shard)});
    optimizer.emplace(reducer->pieces(), optim::AdamOptions{.lr = 0.05});
  }
  Task<double> step(Flags flags, Tensor x, Tensor y) {
    net.learn(flags);
    const autograd::Context own;
    const double rows = double(x.size(0));
    const auto passing = reducer->backward(mse_loss(net.whole(x), y), rows);
    const double loss = co_await passing;
    optimizer->step(reducer->gradients());
    const Future<void> gathering = reducer->gather();
    co_await gathering;
    co_return loss;
  }
  StateDict state() { return net.state_dict(); }
  Layers net;
  std::optional<GradientReducer> reducer;
  std::optional<optim::Adam> optimizer;
  static constexpr auto remote = methods<&RankByRank::join, &RankByRank::step, &RankByRank::state>;
};

Flags draw(std::mt19937& random) {
  Flags flags;
  for (size_t i = 0; i < kLayers; ++i) flags.push_back(random() % 2);
  return flags;
}
Flags draw_some(std::mt19937& random) {
  Flags flags = draw(random);
  flags[random() % kLayers] = 1;
  return flags;
}

// The gradients of what one process would have, by which each replica's rows are learnt from as far as its
// flags say.
struct OneProcess {
  Layers net;
  optim::Adam optimizer{net.parameters(), {.lr = 0.05}};
  void learn_from(const Tensor& x, const Tensor& y, const Flags& flags, double share) {
    net.learn(flags);
    const Tensor loss = mse_loss(net.whole(x), y) * share;
    if (loss.requires_grad()) autograd::backward(loss);
  }
  void learn_from(const Split& x, const Split& y, const std::vector<Flags>& flags) {
    for (size_t r = 0, n = flags.size(); r < n; ++r)
      learn_from(x.part(r, n), y.part(r, n), flags[r], double(x.rows(r, n)) / double(x.whole.size(0)));
  }
  void check(const StateDict& state) {
    for (const auto& [name, value] : net.state_dict()) {
      INFO(name);
      CHECK(difference(state.at(name), value, 1e-9, 1e-12) == "");
    }
  }
  double step(double max_norm = 0.1) {
    const double norm = optim::clip_grad_norm_(net.parameters(), max_norm);
    optimizer.step();
    optimizer.zero_grad();
    return norm;
  }
};

void check(const Way& way, size_t n, unsigned seed, BucketSizes buckets) {
  std::mt19937 random(seed);
  const auto cluster = Cluster::in_process(4, hosting<Learner>());
  const auto workers = cluster->workers();
  const Group group(*cluster, {workers.begin(), workers.begin() + std::ptrdiff_t(n)});
  const DataParallelOptions options{
      .buckets = buckets, .shard = way.shard, .gather = way.gather, .reduce = way.reduce};
  const Flags first = way.shard == Shard::all ? draw_some(random) : draw(random);  // else there is no part
  DataParallel<Learner> net(cluster->here(), group, options, first);
  optim::Distributed<optim::Adam> optimizer(net, {.lr = 0.05});
  OneProcess whole;
  for (int64_t i = 0; i < 8; ++i) {
    std::vector<Flags> flags(n, i == 0 ? first : draw(random));
    // A replica may differ from the others, unless parts have its gradients in common.
    if (i % 3 == 2 && way.shard != Shard::all) flags[random() % n] = draw(random);
    for (size_t r = 0; r < n; ++r) net.replicas()[r].call<&Learner::learn>(flags[r]).get();
    const Tensor x = wave({int64_t(n) + 2, 4}, double(i), float64), y = wave({int64_t(n) + 2, 4}, 1, float64);
    const Split xs = split(x), ys = split(y);
    whole.learn_from(xs, ys, flags);
    autograd::Context step(*cluster);
    const Tensor loss = net.mean<&Learner::loss>(xs, ys).get();
    step.backward(loss);
    CHECK(optimizer.clip_grad_norm(step, 0.1) == Approx(whole.step()).epsilon(1e-9));
    optimizer.step(step);
  }
  const StateDict state = net.state_dict().get();
  INFO(word(way.shard) << " on " << n << " of seed " << seed);
  whole.check(state);
  if (way.shard != Shard::all)
    for (const auto& r : net.replicas())
      for (const auto& [name, value] : nn::remote_state_dict(r).get())
        CHECK(bit_equal(value, state.at(name)));
  nothing_left(*cluster);
}

}  // namespace

TEST_CASE("replicas stay equal and learn as one process, whatever is frozen or thawed between steps") {
  const size_t n = GENERATE(1, 2, 3);
  for (size_t w = 0; w <= kWays.size(); ++w) {
    const Way way = w < kWays.size() ? kWays[w] : Way{Shard::state};
    for (unsigned seed = 1; seed <= 4; ++seed) check(way, n, seed, {.first = 64, .others = 200});
    check(way, n, 5, {});
  }
}

TEST_CASE("rank by rank, members stay equal and learn as one process, whatever is frozen or thawed") {
  const Shard shard = GENERATE(Shard::none, Shard::state, Shard::gradients);
  for (unsigned seed = 1; seed <= 8; ++seed) {
    std::mt19937 random(seed);
    const size_t n = 2;
    const auto cluster = Cluster::in_process(2, hosting<RankByRank>());
    std::vector<RRef<RankByRank>> members;
    const Flags first = draw_some(random);
    for (const auto& w : cluster->workers()) members.push_back(cluster->spawn<RankByRank>(w, first));
    for (auto& m : members) m.call<&RankByRank::join>(Group(members), int64_t(shard)).get();
    OneProcess whole;
    for (int64_t i = 0; i < 8; ++i) {
      std::vector<Flags> flags(n, i == 0 ? first : draw_some(random));
      if (i % 3 == 2) flags[random() % n] = draw_some(random);
      const Split x = split(wave({5, 4}, double(i), float64)), y = split(wave({5, 4}, 1, float64));
      whole.learn_from(x, y, flags);
      whole.step(1e9);
      std::vector<Future<double>> steps;
      for (size_t r = 0; r < n; ++r)
        steps.push_back(members[r].call<&RankByRank::step>(flags[r], x.part(r, n), y.part(r, n)));
      all(steps).get();
    }
    INFO(word(shard) << " of seed " << seed);
    for (const auto& m : members) whole.check(m.call<&RankByRank::state>().get());
    members.clear();
    nothing_left(*cluster);
  }
}

TEST_CASE("replicas of pipelines learn as one process, whatever is frozen or thawed between steps") {
  for (const Way& way : kWays)
    for (unsigned seed = 1; seed <= 3; ++seed) {
      std::mt19937 random(seed);
      const auto cluster = Cluster::in_process(3, hosting<Learner>());
      const Flags first = way.shard == Shard::all ? draw_some(random) : draw(random);
      const Mesh mesh(*cluster, {{"dp", 2}, {"pp", 1}}, {1, 2});
      const auto model = parallel::spawn<Learner>(cluster->here(), mesh, first);
      Pipelines train(cluster->here(), model, stage<&Learner::forward>().with_loss<&Learner::loss_of>(),
                      {.micro_batches = 2, .shard = way.shard, .gather = way.gather, .reduce = way.reduce});
      optim::Distributed<optim::Adam> optimizer(model, {.lr = 0.05});
      OneProcess whole;
      for (int64_t i = 0; i < 6; ++i) {
        const Flags flags = i == 0 ? first : draw(random);
        for (const auto& r : model.actors()) r.call<&Learner::learn>(flags).get();
        const Tensor x = wave({5, 4}, double(i), float64), y = wave({5, 4}, 1, float64);
        whole.learn_from(split(x), split(y), std::vector<Flags>(2, flags));
        autograd::Context step(*cluster);
        train.step(Value(x), Value(y));
        CHECK(optimizer.clip_grad_norm(step, 0.1) == Approx(whole.step()).epsilon(1e-9));
        optimizer.step(step);
      }
      INFO(word(way.shard) << " of seed " << seed);
      if (way.shard != Shard::all)
        for (const auto& r : model.actors()) whole.check(nn::remote_state_dict(r).get());
    }
}

TEST_CASE("norms count each parameter once, also of replicas that others have been made of") {
  const auto cluster = Cluster::in_process(3, hosting<Learner>());
  const auto workers = cluster->workers();
  std::optional<DataParallel<Learner>> first(std::in_place, cluster->here(), Group(*cluster, {0, 1, 2}),
                                             Flags{1, 1, 1});
  const auto all = first->replicas();
  const Tensor x = wave({6, 4}, 1, float64), y = wave({6, 4}, 2, float64);
  OneProcess whole;
  whole.learn_from(x, y, {1, 1, 1}, 1);
  const double want = whole.step(1e9);
  const auto norm = [&](DataParallel<Learner>& net) {
    optim::Distributed<optim::SGD> optimizer(net, {.lr = 0});
    autograd::Context step(*cluster);
    step.backward(net.mean<&Learner::loss>(split(x), split(y)).get());
    return optimizer.clip_grad_norm(step, 1e9);
  };
  CHECK(norm(*first) == Approx(want));
  {
    const DataParallel<Learner> both(std::vector{all[1], all[2]});
    CHECK_THAT(testing::error_of([&] { both.ready().get(); }).what(),
               Catch::Contains("is one of other replicas: let go of the DataParallel"));
  }
  CHECK(norm(*first) == Approx(want));
  first.reset();
  {
    DataParallel<Learner> rest(std::vector{all[1], all[2]});
    CHECK(norm(rest) == Approx(want));
  }
  DataParallel<Learner> last(std::vector{all[2]});
  CHECK(norm(last) == Approx(want));
}
