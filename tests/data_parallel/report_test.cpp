// What replicas report of themselves, on the simulated network.
#include <catch2/catch.hpp>
#include <deque>
#include <optional>

#include "autograd/distributed/optim/distributed_optimizer.h"
#include "troupe/replicas.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace troupe::parallel;
using Catch::Contains;

namespace {

struct ReportNet : nn::Module {
  ReportNet() {
    for (int i = 0; i < 4; ++i) layers.emplace_back(512, 512, false);
  }
  Task<Tensor> operator()(Tensor x) {
    for (auto& l : layers) {
      x = co_await l(x);
      x = ops::tanh(x);
    }
    co_return x;
  }
  void members(nn::Members& m) override {
    for (size_t i = 0; i < layers.size(); ++i) m(std::to_string(i), layers[i]);
  }
  std::deque<Sharded<nn::Linear>> layers;
};
struct ReportActor : nn::ModuleActor<ReportNet> {
  explicit ReportActor(int64_t frozen) {
    for (int64_t i = 0; i < frozen; ++i) net.layers[size_t(i)].module.requires_grad_(false);
  }
  Task<Tensor> loss(Tensor x) {
    const Tensor out = co_await net(x);
    co_return ops::mean(out * out);
  }
  static constexpr auto remote = methods<&ReportActor::loss>;
};

struct ReportWorld {
  SimulatedCluster cluster;
  std::optional<DataParallel<ReportActor>> net;
  std::optional<optim::Distributed<optim::Adam>> optimizer;
  ReportWorld(size_t n, Shard shard, Per per, int64_t frozen = 0)
      : cluster(1, int(n) + 1, hosting<ReportActor>()) {
    std::vector<RRef<ReportActor>> all;
    for (size_t r = 0; r < n; ++r) all.push_back(cluster.here(0).spawn<ReportActor>(r + 1, frozen));
    net.emplace(all, DataParallelOptions{.shard = shard, .gather = per, .reduce = per});
    cluster.await(net->ready()).value();
    optimizer.emplace(*net, optim::AdamOptions{.lr = 1e-3});
  }
  ~ReportWorld() {
    optimizer.reset(), net.reset();
    cluster.settle();
  }
  Tensor loss() {
    return cluster
        .await(net->mean<&ReportActor::loss>(split(ops::sin(arange(8 * 512).to(float32)).reshape({8, 512}))))
        .value();
  }
  void step() {
    autograd::Context context(cluster.worker(0));
    const Tensor loss = this->loss();
    cluster.await(context.backward_async(loss)).value();
    cluster.await(optimizer->step_async(context)).value();
  }
  double network(size_t from) {
    uint64_t bytes = 0;
    for (size_t to = 1; to <= net->size(); ++to)
      bytes += cluster.network().counters("w" + std::to_string(from), "w" + std::to_string(to)).bytes;
    return double(bytes);
  }
};

}  // namespace

TEST_CASE("what replicas report of themselves is what formulas say, and what the network has seen") {
  const size_t n = GENERATE(2, 4);
  struct Formula {
    Shard shard;
    double parameters, gradients, state, sent;  // of all parameters
    Per per = Per::use;
  };
  const double piece = 1 / double(n), others = 1 - piece, all = 4 * 4 * 512 * 512;
  for (const Formula& f :
       {Formula{Shard::all, piece, piece, 2 * piece, 2, Per::step}, Formula{Shard::none, 1, 1, 2, 2},
        Formula{Shard::state, 1, 1, 2 * piece, 3}, Formula{Shard::gradients, 1, piece, 2 * piece, 2},
        Formula{Shard::all, piece, piece, 2 * piece, 3}}) {
    INFO(word(f.shard) << " on " << n);
    ReportWorld world(n, f.shard, f.per);
    for (const RankBytes& b : world.cluster.await(world.net->report()).value().replicas) {
      CHECK(b.sent == 0);  // not what joining sent
      CHECK(double(b.parameters) == Approx(f.parameters * all).epsilon(0.001));
    }
    world.step();
    std::vector<double> before;
    for (size_t r = 1; r <= n; ++r) before.push_back(world.network(r));
    world.step();
    const ReplicasReport report = world.cluster.await(world.net->report()).value();
    REQUIRE(report.replicas.size() == n);
    for (size_t r = 0; r < n; ++r) {
      CHECK(report.replicas[r].whole == int64_t(all));
      for (const RankBytes& b : {report.replicas[r], report.expected(r)}) {
        CHECK(double(b.parameters) == Approx(f.parameters * all).epsilon(0.001));
        CHECK(double(b.gradients) == Approx(f.gradients * all).epsilon(0.001));
        CHECK(double(b.state) == Approx(f.state * all).epsilon(0.001));
        CHECK(double(b.sent) == Approx(f.sent * others * all).epsilon(0.02));
      }
      CHECK(double(report.replicas[r].sent) == Approx(world.network(r + 1) - before[r]).epsilon(0.02));
      CHECK_THAT(report.str(), Contains(report.replicas[r].actor));
    }
    CHECK_THAT(report.str(), Contains("of a model of 4.0 MiB") && Contains("by formula"));
  }
}

TEST_CASE("reports count what trains, and what the last step sent, not an evaluation after it") {
  const size_t n = 2;
  const double half = 2 * 4 * 512 * 512;  // of four layers two are frozen
  struct Formula {
    Shard shard;
    double trained, sent;  // of the half that trains: what a replica keeps of it
    Per per = Per::use;
  };
  for (const Formula& f :
       {Formula{Shard::none, 1, 2}, Formula{Shard::state, 1, 3}, Formula{Shard::gradients, 1, 2},
        Formula{Shard::all, 0.5, 3}, Formula{Shard::all, 0.5, 2, Per::step}}) {
    INFO(word(f.shard) << ", once: " << (f.per == Per::step));
    ReportWorld world(n, f.shard, f.per, 2);
    world.step();
    world.step();
    const auto check = [&] {
      const ReplicasReport report = world.cluster.await(world.net->report()).value();
      for (size_t r = 0; r < n; ++r)
        for (const RankBytes& b : {report.replicas[r], report.expected(r)}) {
          CHECK(double(b.whole) == 2 * half);
          CHECK(double(b.frozen) == half);
          CHECK(double(b.parameters) == Approx(half + f.trained * half).epsilon(0.001));
          CHECK(double(b.sent) == Approx(f.sent * half / 2).epsilon(0.02));
        }
    };
    check();
    for (int i = 0; i < 3; ++i) world.loss();
    check();
    world.step();
    check();
  }
}
