// Distributed optimizers: parameters without gradients, errors of some actors, several clients at once.
#include <catch2/catch.hpp>

#include <algorithm>
#include <thread>

#include "tests/support/error_of.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;

// Not in a namespace, so that errors name it like this.
struct TwoTensors : Actor {
  TwoTensors(int64_t size, bool floating)
      : used(ones({size})), idle(floating ? full({2}, 0.3) : tensor({1})) {
    used.requires_grad_();
    if (floating) idle.requires_grad_();
  }
  Tensor forward(Tensor x) { return ops::add(x, used); }  // gradient 1 for all elements
  std::vector<Tensor> values() { return {used.detach().clone_data(), idle.detach().clone_data()}; }
  Tensors parameters() override { return {used, idle}; }
  Tensor used, idle;
  static constexpr auto remote = methods<&TwoTensors::forward, &TwoTensors::values>;
};

namespace {

template <class O>
void leaves_alone(typename O::Options options) {
  INFO(O::kName);
  auto cluster = Cluster::in_process(3, hosting<TwoTensors>());
  auto a = cluster->spawn<TwoTensors>("w1", 2, true), b = cluster->spawn<TwoTensors>("w2", 2, true);
  const auto before = a.call<&TwoTensors::values>().get();
  optim::Distributed<O> optimizer({a, b}, options);
  for (int step = 1; step <= 3; ++step) {
    autograd::Context context(*cluster);
    context.backward(a.call<&TwoTensors::forward>(tensor({1, 2}, float32)).get().sum());
    optimizer.step(context);
  }
  const auto after = a.call<&TwoTensors::values>().get(), other = b.call<&TwoTensors::values>().get();
  CHECK_FALSE(bit_equal(after[0], before[0]));
  CHECK(bit_equal(after[1], before[1]));
  CHECK(bit_equal(other[0], before[0]));  // no call to this actor
  CHECK(bit_equal(other[1], before[1]));
}

}  // namespace

TEST_CASE("a distributed step leaves parameters and actors without gradients alone") {
  leaves_alone<optim::SGD>({.lr = 0.1});
  leaves_alone<optim::SGD>({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1});
  leaves_alone<optim::Adam>({.lr = 0.1});
  leaves_alone<optim::AdamW>({.lr = 0.1, .weight_decay = 0.1});
}

TEST_CASE("an optimizer that an actor cannot have is told by every step, and the other actors step") {
  auto cluster = Cluster::in_process(3, hosting<TwoTensors>());
  auto good = cluster->spawn<TwoTensors>("w1", 2, true), bad = cluster->spawn<TwoTensors>("w2", 2, false);
  optim::Distributed<optim::SGD> optimizer({bad, good}, {.lr = 0.25});
  for (int step = 1; step <= 3; ++step) {
    autograd::Context context(*cluster);
    const Tensor x = tensor({1, 2}, float32);
    context.backward(
        ops::add(good.call<&TwoTensors::forward>(x).get(), bad.call<&TwoTensors::forward>(x).get()).sum());
    const Error e = error_of([&] { optimizer.step(context); });
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.what(), Catch::Contains("the step failed on 1 of 2 actors: TwoTensors#0:2 on w2: ") &&
                             Catch::Contains("int64 [1]: not floating"));
    CHECK(good.call<&TwoTensors::values>().get()[0].to_vector<float>() ==
          std::vector<float>(2, 1 - 0.25f * float(step)));
    CHECK(bad.call<&TwoTensors::values>().get()[0].to_vector<float>() == std::vector<float>{1, 1});
  }
}

TEST_CASE("a step reports per actor who was updated and who failed, and its error names all that failed") {
  auto cluster = Cluster::in_process(3, hosting<TwoTensors>());
  auto one = cluster->spawn<TwoTensors>("w1", 2, true), idle = cluster->spawn<TwoTensors>("w1", 2, true);
  auto bad = cluster->spawn<TwoTensors>("w2", 2, false), worse = cluster->spawn<TwoTensors>("w1", 2, false);
  optim::Distributed<optim::SGD> optimizer({one, bad, idle, worse}, {.lr = 0.25});
  autograd::Context context(*cluster);
  context.backward(one.call<&TwoTensors::forward>(tensor({1, 2}, float32)).get().sum());
  const optim::StepReport report = optimizer.try_step(context).get();
  CHECK_FALSE(report.ok());
  CHECK(report.updated() == 1);
  REQUIRE(report.owners.size() == 4);
  CHECK(report.owners[0].actor == "TwoTensors#0:1 on w1");
  CHECK(report.owners[0].worker == "w1");
  CHECK(report.owners[0].updated == 1);
  CHECK_FALSE(report.owners[0].error);
  CHECK(report.owners[2].updated == 0);  // it had no gradient
  CHECK_FALSE(report.owners[2].error);
  for (const size_t failed : {1, 3}) {
    REQUIRE(report.owners[failed].error);
    CHECK_THAT(report.owners[failed].error->what(), Catch::Contains("not floating"));
    CHECK(report.owners[failed].updated == 0);
  }
  const auto error = report.error("the step");
  REQUIRE(error);
  CHECK_THAT(error->message(), Catch::Contains("2 of 4 actors: TwoTensors#0:3 on w2: [optim] parameter 1") &&
                                   Catch::Contains("; TwoTensors#0:4 on w1: [optim] parameter 1"));
  CHECK(one.call<&TwoTensors::values>().get()[0].to_vector<float>() == std::vector<float>(2, 0.75f));
}

TEST_CASE("a step whose owners die names them all, and the others have stepped, and step again") {
  SimulatedCluster cluster(7, 4, hosting<TwoTensors>());
  auto a = cluster.here(0).spawn<TwoTensors>(1, int64_t{2}, true),
       b = cluster.here(0).spawn<TwoTensors>(2, int64_t{2}, true),
       c = cluster.here(0).spawn<TwoTensors>(3, int64_t{2}, true);
  optim::Distributed<optim::SGD> optimizer({a, b, c}, {.lr = 0.25});
  for (const bool dead : {false, true}) {
    autograd::Context context(cluster.worker(0));
    const auto y = cluster.await(b.call<&TwoTensors::forward>(tensor({1, 2}, float32)));
    REQUIRE(cluster.await(context.backward_async({y.value().sum()})).ok());
    if (!dead)
      for (const char* victim : {"w1", "w3"}) cluster.network().crash(victim);
    const auto report = cluster.await(optimizer.try_step(context)).value();
    CHECK(report.updated() == 1);
    CHECK_FALSE(report.owners[1].error);
    const auto error = report.error("the step");
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::disconnected);
    CHECK(error->worker() == "w1");
    CHECK_THAT(error->message(), Catch::Contains("2 of 3 actors: TwoTensors#0:1 on w1: ") &&
                                     Catch::Contains("; TwoTensors#0:3 on w3: "));
    CHECK(cluster.await(b.call<&TwoTensors::values>()).value()[0].to_vector<float>() ==
          std::vector<float>(2, dead ? 0.5f : 0.75f));
  }
  CHECK(error_of([&] { optim::Distributed<optim::SGD>({a, b, a}, {}); }).kind() == ErrorKind::invalid);
}

TEST_CASE("steps of four clients on the same parameters come one after the other") {
  constexpr int kClients = 4, kSteps = 50, kSize = 20'000;
  auto cluster = Cluster::in_process(3, hosting<TwoTensors>());
  auto a = cluster->spawn<TwoTensors>("w1", kSize, true), b = cluster->spawn<TwoTensors>("w2", kSize, true);
  const Tensor x = zeros({kSize});
  std::vector<std::thread> clients;
  std::atomic<int> whole{0};
  for (int c = 0; c < kClients; ++c)
    clients.emplace_back([&] {
      optim::Distributed<optim::SGD> optimizer({a, b}, {.lr = 1.0 / 1024});
      for (int i = 0; i < kSteps; ++i) {
        autograd::Context context(*cluster);
        Tensor y = b.call<&TwoTensors::forward>(a.call<&TwoTensors::forward>(x)).get();
        const auto values = y.to_vector<float>();  // each parameter as some number of whole steps left it
        whole += std::all_of(values.begin(), values.end(), [&](float v) { return v == values[0]; });
        context.backward(y.sum());
        optimizer.step(context);
        context.end().get();
      }
    });
  for (auto& c : clients) c.join();
  CHECK(whole == kClients * kSteps);
  const float end = 1 - float(kClients * kSteps) / 1024;  // exact: no step was lost
  for (const auto& model : {a, b})
    CHECK(model.call<&TwoTensors::values>().get()[0].to_vector<float>() == std::vector<float>(kSize, end));
}
