// Loss scaling where gradients lie in several places: all leave a step out or none does, and one scale stays
// one.
#include <catch2/catch.hpp>
#include <limits>
#include <optional>

#include "parallel/server/served_gradients.h"
#include "tests/data_parallel/parts.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "troupe/pipeline.h"
#include "troupe/replicas.h"
#include "troupe/server.h"
#include "troupe/tensor_parallel.h"

using namespace troupe;
using namespace troupe::parallel;
using Catch::Contains;
using testing::difference;
using testing::error_of;
using testing::kWays;
using testing::wave;

namespace {

constexpr int64_t kWidth = 96;

// Its gradient is the mean row: an element of x that is not finite makes one of it that is not.
struct Products : nn::Layer {
  Tensor forward(const Tensor& x) override { return ops::matmul(x, w); }
  void members(nn::Members& m) override { m("w", w); }
  Tensor w = wave({kWidth}, 1, float64).requires_grad_();
};
struct Net : nn::Module {
  Task<Tensor> operator()(Tensor x) { return part(std::move(x)); }
  void members(nn::Members& m) override { m("part", part); }
  Sharded<Products> part;
};
struct Learner : nn::ModuleActor<Net> {
  Learner() = default;
  Learner(Mesh) {}  // NOLINT: as spawn() calls it
  Task<Tensor> forward(Tensor x) { return net(std::move(x)); }
  Tensor mean(Tensor y, Tensor) { return ops::mean(y); }
  Task<Tensor> loss(Tensor x) {
    const Tensor y = co_await net(x);
    co_return ops::mean(y);
  }
  static constexpr auto remote = methods<&Learner::forward, &Learner::mean, &Learner::loss>;
};

// Of the steps 2, 5 and 6 one element is infinite, of one row.
Tensor rows(int64_t step, int64_t n) {
  Tensor x = wave({n, kWidth}, double(step), float64);
  if (step == 2) x.select(0, 0).select(0, 70).fill_(std::numeric_limits<double>::infinity());
  if (step == 5 || step == 6) x.select(0, n - 1).select(0, 3).fill_(std::numeric_limits<double>::quiet_NaN());
  return x;
}

const optim::LossScaler::Options kOptions{.init_scale = 1024, .growth_interval = 2};

// What one process does.
struct OneProcess {
  Products net;
  optim::Adam optimizer{net.parameters(), {.lr = 0.05}};
  optim::LossScaler scaler{kOptions};
  bool step(const Tensor& x, bool clips = false) {
    optimizer.zero_grad();
    autograd::backward(scaler.scale(ops::mean(net(x))));
    if (clips) {
      scaler.unscale_(optimizer);
      optim::clip_grad_norm_(net.parameters(), 0.1);
    }
    const bool made = scaler.step(optimizer);
    scaler.update();
    return made;
  }
};

struct RankByRank : Actor {
  void join(Group group, int64_t shard) {
    reducer.emplace(group, net.parameters(), ReducerOptions{.shard = static_cast<Shard>(shard)});
    optimizer.emplace(reducer->pieces(), optim::AdamOptions{.lr = 0.05});
  }
  Task<std::pair<bool, double>> step(Tensor x, bool clips) {
    const autograd::Context own;
    const auto passing = reducer->backward(scaler.scale(ops::mean(net(x))), double(x.size(0)));
    (void)co_await passing;
    Tensors gradients = reducer->gradients();
    const auto unscaling = reducer->unscale_(scaler, gradients);
    const bool finite = co_await unscaling;
    const auto clipping = reducer->clip_norm_(gradients, clips ? 0.1 : 1e9);
    (void)co_await clipping;
    if (finite) optimizer->step(gradients);
    scaler.update();
    const Future<void> gathering = reducer->gather();
    co_await gathering;
    co_return std::pair(finite, scaler.scale());
  }
  Task<double> wrong() {
    Tensors none;
    const auto clipping = reducer->clip_norm_(none, 1);
    co_return co_await clipping;
  }
  Tensor values() { return net.w.clone_data(); }
  Products net;
  optim::LossScaler scaler{kOptions};
  std::optional<GradientReducer> reducer;
  std::optional<optim::Adam> optimizer;
  static constexpr auto remote =
      methods<&RankByRank::join, &RankByRank::step, &RankByRank::wrong, &RankByRank::values>;
};

}  // namespace

TEST_CASE("replicas leave out a step whose gradients are infinite anywhere, and keep one scale") {
  for (const auto& way : kWays)
    for (const bool clips : {false, true}) {
      const auto cluster = Cluster::in_process(3, hosting<Learner>());
      const DataParallelOptions options{.shard = way.shard, .gather = way.gather, .reduce = way.reduce};
      DataParallel<Learner> net(cluster->here(), Group(*cluster, {0, 1, 2}), options);
      optim::Distributed<optim::Adam> optimizer(net, {.lr = 0.05});
      optim::LossScaler scaler(kOptions);
      OneProcess whole;
      for (int64_t i = 0; i < 10; ++i) {
        const Tensor x = rows(i, 5);
        autograd::Context step(*cluster);
        step.backward(scaler.scale(net.mean<&Learner::loss>(split(x)).get()));
        if (clips) {
          const bool finite = optim::unscale_(step, scaler, {optimizer});
          CHECK(finite == (i != 2 && i != 5 && i != 6));
          if (finite) optimizer.clip_grad_norm(step, 0.1);
        }
        CHECK(optimizer.step(step, scaler) == whole.step(x, clips));
        scaler.update();
        CHECK(scaler.scale() == whole.scaler.scale());
      }
      INFO(word(way.shard));
      CHECK(difference(net.state_dict().get().at("part.w"), whole.net.w.detach(), 1e-9, 1e-12) == "");
    }
}

TEST_CASE("replicas of pipelines leave out a step whose gradients are infinite anywhere") {
  for (const auto& way : kWays) {
    const auto cluster = Cluster::in_process(3, hosting<Learner>());
    const Mesh mesh(*cluster, {{"dp", 2}, {"pp", 1}}, {1, 2});
    const auto model = parallel::spawn<Learner>(cluster->here(), mesh);
    Pipelines train(cluster->here(), model, stage<&Learner::forward>().with_loss<&Learner::mean>(),
                    {.micro_batches = 2, .shard = way.shard, .gather = way.gather, .reduce = way.reduce});
    optim::Distributed<optim::Adam> optimizer(model, {.lr = 0.05});
    optim::LossScaler scaler(kOptions);
    OneProcess whole;
    for (int64_t i = 0; i < 8; ++i) {
      const Tensor x = rows(i, 5);
      autograd::Context step(*cluster);
      train.step(Value(x), Value(x), {.loss_scale = scaler.scale()});
      CHECK(optimizer.step(step, scaler) == whole.step(x));
      scaler.update();
      CHECK(scaler.scale() == whole.scaler.scale());
    }
    autograd::Context step(*cluster);
    const Tensor x = wave({4, kWidth}, 1, float64);
    CHECK(train.step(Value(x), Value(x)).loss == Approx(ops::mean(whole.net(x)).item()));
    CHECK_THAT(error_of([&] { train.step(Value(x), Value(x), {.loss_scale = -1}); }).what(),
               Contains("a loss scale of -1"));
  }
}

TEST_CASE("rank by rank, members leave out a step whose gradients are infinite anywhere") {
  for (const Shard shard : {Shard::none, Shard::state, Shard::gradients})
    for (const bool clips : {false, true}) {
      const size_t n = 3;
      const auto cluster = Cluster::in_process(3, hosting<RankByRank>());
      std::vector<RRef<RankByRank>> members;
      for (const auto& w : cluster->workers()) members.push_back(cluster->spawn<RankByRank>(w));
      for (auto& m : members) m.call<&RankByRank::join>(Group(members), int64_t(shard)).get();
      OneProcess whole;
      for (int64_t i = 0; i < 8; ++i) {
        const Split x = split(rows(i, 5));
        std::vector<Future<std::pair<bool, double>>> steps;
        for (size_t r = 0; r < n; ++r)
          steps.push_back(members[r].call<&RankByRank::step>(x.part(r, n), clips));
        const bool made = whole.step(x.whole, clips);
        for (const auto& [stepped, scale] : all(steps).get()) {
          CHECK(stepped == made);
          CHECK(scale == whole.scaler.scale());
        }
      }
      INFO(word(shard));
      for (const auto& m : members)
        CHECK(difference(m.call<&RankByRank::values>().get(), whole.net.w.detach(), 1e-9, 1e-12) == "");
      if (shard == Shard::none) continue;
      // Not the gradients of this reducer, on one: all hear of it at once.
      std::vector<Future<double>> norms;
      for (const auto& m : members) norms.push_back(m.call<&RankByRank::wrong>());
      for (const auto& norm : norms)
        CHECK_THAT(error_of([&] { norm.get(); }).what(), Contains("expected those of gradients()"));
    }
}

TEST_CASE("optimizers, leaves here and values in servers are unscaled as one") {
  const auto cluster = Cluster::in_process(2, hosting<ModuleReplica<nn::Linear>>());
  const auto actor = cluster->spawn<ModuleReplica<nn::Linear>>("w1", 3, 1);
  optim::Distributed<optim::SGD> optimizer({actor}, {.lr = 0.5});
  const Served served =
      serve(cluster->here(), {"w1"}, {ones({3})}, {.optimizer = "sgd", .options = {{"lr", 0.5}}});
  Client client(served);
  const Tensor head = ones({1}, float16).requires_grad_();
  optim::LossScaler scaler(kOptions);
  for (const double x : {1.0, std::numeric_limits<double>::infinity(), 1.0}) {
    const auto before = nn::remote_parameters(actor).get();
    autograd::Context step(*cluster);
    const Tensor w = client.pull().get()[0];
    const Tensor out = actor.call<&ModuleReplica<nn::Linear>::forward>(ones({1, 3}) * w).get();
    step.backward(scaler.scale(ops::sum(out) * head.to(float32) + ops::sum(w) * x));
    const auto places = [&] {
      return std::vector<optim::ContextGradients>{optimizer, optim::gradients_of(Tensors{head}),
                                                  gradients_of(served)};
    };
    const bool finite = optim::unscale_(step, scaler, places());
    CHECK(finite == std::isfinite(x));
    CHECK(step.grad(head).dtype() == float32);
    CHECK_THAT(error_of([&] { optim::unscale_(step, scaler, places()); }).what(),
               Contains("unscaled already"));
    CHECK(optimizer.step(step, scaler) == finite);
    client.push_context(finite ? 1 : 0).get();
    scaler.update();
    const auto after = nn::remote_parameters(actor).get();
    CHECK(bit_equal(before.at("bias"), after.at("bias")) == !finite);
    if (finite) CHECK(difference(before.at("bias") - after.at("bias"), full({1}, 0.5), 1e-5, 1e-6) == "");
  }
  CHECK(scaler.scale() == 512);
}
