// Replicas that share hosts: with nothing said in the program, what goes between hosts goes once.
#include <catch2/catch.hpp>

#include <deque>
#include <optional>

#include "autograd/distributed/optim/distributed_optimizer.h"
#include "troupe/replicas.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace troupe::parallel;

namespace {

struct HostNet : nn::Module {
  HostNet() {
    for (int i = 0; i < 3; ++i) {
      layers.emplace_back(512, 512, false);
      Generator random(static_cast<uint64_t>(i) + 1);
      layers.back().module.load_state_dict({{"weight", randn({512, 512}, random) * 0.04}});
    }
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
struct HostActor : nn::ModuleActor<HostNet> {
  Task<Tensor> loss(Tensor x) {
    const Tensor out = co_await net(x);
    co_return ops::mean(out * out);
  }
  static constexpr auto remote = methods<&HostActor::loss>;
};

struct Trained {
  std::vector<double> losses;
  double from_first_half = 0;  // bytes that workers 1 and 2 have sent to 3 and 4
};

// Worker 0 drives, on a host of its own.
Trained train(Shard shard, const std::vector<std::string>& hosts) {
  SimulatedCluster cluster(1, 5, hosting<HostActor>(), {.hosts = hosts});
  Trained all;
  const auto sent = [&] {
    uint64_t bytes = 0;
    for (const char* from : {"w1", "w2"})
      for (const char* to : {"w3", "w4"}) bytes += cluster.network().counters(from, to).bytes;
    return static_cast<double>(bytes);
  };
  {
    std::vector<RRef<HostActor>> replicas;
    for (size_t r = 1; r <= 4; ++r) replicas.push_back(cluster.here(0).spawn<HostActor>(r));
    DataParallel<HostActor> net(replicas, DataParallelOptions{.shard = shard});
    cluster.await(net.ready()).value();
    optim::Distributed<optim::Adam> optimizer(net, optim::AdamOptions{.lr = 1e-3});
    const Tensor x = ops::sin(arange(8 * 512).to(float32)).reshape({8, 512});
    for (int i = 0; i < 4; ++i) {
      const double before = sent();
      autograd::Context context(cluster.worker(0));
      const Tensor loss = cluster.await(net.mean<&HostActor::loss>(split(x))).value();
      cluster.await(context.backward_async(loss)).value();
      cluster.await(optimizer.step_async(context)).value();
      if (i) all.from_first_half += sent() - before;
      all.losses.push_back(loss.item());
    }
  }
  cluster.settle();
  return all;
}

}  // namespace

TEST_CASE("replicas of two hosts send half between them of what they would on four, and learn the same") {
  for (const Shard shard : {Shard::none, Shard::state, Shard::gradients, Shard::all}) {
    CAPTURE(static_cast<int>(shard));
    const Trained four = train(shard, {"driver", "a", "b", "c", "d"}),
                  two = train(shard, {"driver", "a", "a", "b", "b"});
    CHECK(two.losses.back() < two.losses.front());
    for (size_t i = 0; i < two.losses.size(); ++i)
      CHECK(two.losses[i] == Approx(four.losses[i]).epsilon(1e-4));
    // A host of two sends a sum's S bytes rather than 2 S, and S / 2 of what is gathered rather than S.
    CHECK(two.from_first_half > 0);
    CHECK(two.from_first_half / four.from_first_half == Approx(0.5).epsilon(0.05));
  }
}
