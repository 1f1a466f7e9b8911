// What replicas send in a step by PowerSGD, by a median and by means of parameters, beside the formulas; on
// the simulated network.
#include <catch2/catch.hpp>
#include <optional>

#include "autograd/distributed/optim/distributed_optimizer.h"
#include "ops/random.h"
#include "troupe/replicas.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace troupe::parallel;

namespace {

struct WideNet : nn::Layer {
  nn::Linear first{256, 512}, second{512, 64};
  Tensor forward(const Tensor& x) override { return second(ops::tanh(first(x))); }
  void members(nn::Members& m) override { m("first", first), m("second", second); }
};
struct WideActor : nn::ModuleActor<WideNet> {
  Tensor loss(Tensor x) { return ops::mean(net(x) * net(x)); }
  static constexpr auto remote = methods<&WideActor::loss>;
};
constexpr double kWhole = 4. * (256 * 512 + 512 + 512 * 64 + 64);  // bytes of the model

struct WideWorld {
  SimulatedCluster cluster;
  std::optional<DataParallel<WideActor>> net;
  std::optional<optim::Distributed<optim::SGD>> optimizer;
  WideWorld(size_t n, const DataParallelOptions& options) : cluster(1, int(n) + 1, hosting<WideActor>()) {
    std::vector<RRef<WideActor>> all;
    for (size_t r = 0; r < n; ++r) all.push_back(cluster.here(0).spawn<WideActor>(r + 1));
    net.emplace(all, options);
    cluster.await(net->ready()).value();
    optimizer.emplace(*net, optim::SGDOptions{.lr = 1e-3});
  }
  ~WideWorld() {
    optimizer.reset(), net.reset();
    cluster.settle();
  }
  void step() {
    autograd::Context context(cluster.worker(0));
    const Tensor x = ops::randn({int64_t(2 * net->size()), 256}, Generator(4));
    const Tensor loss = cluster.await(net->mean<&WideActor::loss>(split(x))).value();
    cluster.await(context.backward_async(loss)).value();
    cluster.await(optimizer->step_async(context)).value();
  }
  // That all replicas have sent each other.
  double sent() {
    double bytes = 0;
    for (size_t from = 1; from <= net->size(); ++from)
      for (size_t to = 1; to <= net->size(); ++to)
        if (from != to)
          bytes +=
              double(cluster.network().counters("w" + std::to_string(from), "w" + std::to_string(to)).bytes);
    return bytes;
  }
  double per_step(int steps) {
    const double before = sent();
    for (int i = 0; i < steps; ++i) step();
    cluster.settle();
    return (sent() - before) / steps;
  }
};

double rings(size_t n) { return 2. * double(n - 1); }  // what an all_reduce sends, all in all, of each byte

}  // namespace

TEST_CASE("a step by PowerSGD sends two factors of each matrix") {
  WideWorld world(2, {.compression = Compression::parse("powersgd(4)")});
  world.step();
  const double elements = double(power_sgd_elements({512, 256}, 4) + power_sgd_elements({64, 512}, 4));
  CHECK(elements == 4 * (512 + 256) + 4 * (64 + 512));
  const double want = rings(2) * 4 * (elements + 512 + 64), got = world.per_step(4);
  INFO("sent " << got << ", by the formula " << want << ", whole " << rings(2) * kWhole);
  CHECK(got > want);
  CHECK(got < want * 1.15 + 2000);  // headers of some dozen messages
  const ReplicasReport report = world.cluster.await(world.net->report()).value();
  CHECK(2 * double(report.expected(0).sent) == want);
}

TEST_CASE("a median sends what a sum over a ring sends") {
  const size_t n = 3;
  WideWorld world(n, {.aggregation = "median"});
  world.step();
  const double want = rings(n) * kWhole, got = world.per_step(2);
  INFO("sent " << got << ", by the formula " << want);
  CHECK(got > want);
  CHECK(got < want * 1.05);
}

TEST_CASE("replicas that learn by themselves send their parameters once in so many steps, and nothing else") {
  const size_t n = 3;
  WideWorld world(n, {.average = {.every = 5, .outer_lr = 0.7, .outer_momentum = 0.9}});
  for (int i = 0; i < 5; ++i) world.step();
  const double want = rings(n) * kWhole / 5;
  const double got = world.per_step(10);
  INFO("sent " << got << ", by the formula " << want);
  CHECK(got > want);
  CHECK(got < want * 1.05);
  CHECK(world.per_step(1) > rings(n) * kWhole);  // the mean
  CHECK(world.per_step(4) < 2000);               // that all are there
  const ReplicasReport report = world.cluster.await(world.net->report()).value();
  for (size_t r = 0; r < n; ++r) {
    CHECK(double(report.expected(r).sent) == Approx(rings(n) * kWhole / double(n)).epsilon(1e-6));
    CHECK(double(report.replicas[r].sent) == Approx(double(report.expected(r).sent)).epsilon(0.02));
  }
}
