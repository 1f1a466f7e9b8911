// What parts of replicas keep and send, and what is left where one dies.
#include <catch2/catch.hpp>
#include <deque>
#include <optional>

#include "actors/worker/worker.h"
#include "core/memory/cpu_allocator.h"
#include "tests/data_parallel/parts.h"
#include "tests/support/error_of.h"
#include "troupe/replicas.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace troupe::parallel;
using Catch::Contains;
using testing::error_of;
using testing::wave;

namespace {

struct Wide : nn::Module {
  Wide() {
    for (int i = 0; i < 8; ++i) layers.emplace_back(512, 512, false);
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
struct WideActor : nn::ModuleActor<Wide> {
  Task<Tensor> loss(Tensor x) {
    const Tensor out = co_await net(x);
    co_return ops::mean(out * out);
  }
  void halve() {
    const NoGradGuard off;
    for (Tensor& p : parameters()) p.mul_(0.5);
  }
  static constexpr auto remote = methods<&WideActor::loss, &WideActor::halve>;
};

}  // namespace

TEST_CASE("a step between the forward and the backward pass of parts is refused, naming the part") {
  const Per gather = GENERATE(Per::use, Per::step), reduce = GENERATE(Per::use, Per::step);
  auto cluster = Cluster::in_process(2, hosting<WideActor>());
  const DataParallelOptions options{.shard = Shard::all, .gather = gather, .reduce = reduce};
  DataParallel<WideActor> net(cluster->here(), Group(*cluster, {"w0", "w1"}), options);
  optim::Distributed<optim::SGD> optimizer(net, {.lr = 0.05});
  autograd::Context step(*cluster);
  const Tensor x = wave({4, 512}, 1), loss = net.mean<&WideActor::loss>(split(x)).get(),
               other = net.mean<&WideActor::loss>(split(x)).get();
  step.backward(loss);
  optimizer.step(step);
  CHECK_THAT(error_of([&] { step.backward(other); }).what(),
             Contains("parameters of part ") && Contains(" were changed, as by an optimizer's step"));
}

TEST_CASE("parameters of parts that a method writes within a context are taken in the next use, or refused") {
  const Per gather = GENERATE(Per::use, Per::step), reduce = GENERATE(Per::use, Per::step);
  auto cluster = Cluster::in_process(2, hosting<WideActor>());
  const DataParallelOptions options{.shard = Shard::all, .gather = gather, .reduce = reduce};
  DataParallel<WideActor> net(cluster->here(), Group(*cluster, {"w0", "w1"}), options);
  const Tensor x = wave({4, 512}, 1);
  const auto loss = [&] { return net.mean<&WideActor::loss>(split(x)).get().item(); };
  const auto halve = [&] {
    for (const auto& r : net.replicas()) r.call<&WideActor::halve>().get();
  };
  const double before = loss();  // in no context, gathered in each use
  halve();
  const double after = loss();
  CHECK(after < before);
  {
    autograd::Context step(*cluster);
    CHECK(loss() == after);
    halve();
    if (gather == Per::use)
      CHECK(loss() < after);
    else
      CHECK_THAT(error_of(loss).what(), Contains("parameters of part ") && Contains("were written") &&
                                            Contains("between contexts, or gather in each use"));
  }
  autograd::Context step(*cluster);
  CHECK(loss() < after);
}

TEST_CASE("with parts, a replica keeps 16 bytes of each parameter divided by the number of replicas") {
  const size_t n = GENERATE(2, 4);
  release_cached_cpu_memory();
  const size_t before = cpu_allocator_stats().in_use;
  auto cluster = Cluster::in_process(4, hosting<WideActor>());
  const auto workers = cluster->workers();
  const Per gather = GENERATE(Per::use, Per::step), reduce = GENERATE(Per::use, Per::step);
  const DataParallelOptions options{.shard = Shard::all, .gather = gather, .reduce = reduce};
  DataParallel<WideActor> net(
      cluster->here(), Group(*cluster, {workers.begin(), workers.begin() + std::ptrdiff_t(n)}), options);
  optim::Distributed<optim::Adam> optimizer(net, {.lr = 1e-3});
  const auto check = [&](double want) {
    const double bytes = double(cpu_allocator_stats().in_use - before) / double(n) / (8 * 512 * 512);
    INFO(bytes << " bytes on " << n << ", once: " << (gather == Per::step) << (reduce == Per::step));
    CHECK(bytes > 0.9 * want);
    CHECK(bytes < 1.1 * want);
  };
  const double whole = gather == Per::step ? 4 : 0;  // parameters, until the optimizer's step
  const auto loss = [&](int i) { return net.mean<&WideActor::loss>(split(wave({8, 512}, i))).get(); };
  for (int i = 0; i < 2; ++i) {
    autograd::Context step(*cluster);
    step.backward(loss(i));
    if (i == 1) check(whole + 16 / double(n));
    optimizer.step(step);
    if (i == 1) check(16 / double(n));
  }
  autograd::Context step(*cluster);
  const Accumulation later = net.accumulate();
  step.backward(loss(2));
  check(whole + 12 / double(n) + (reduce == Per::step ? 4 : 4 / double(n)));
}

namespace {

// On the simulated network.
struct Simulated {
  SimulatedCluster cluster;
  std::optional<DataParallel<WideActor>> net;
  std::optional<optim::Distributed<optim::SGD>> optimizer;
  explicit Simulated(size_t n, Per gather = Per::use, Per reduce = Per::use)
      : cluster(1, int(n) + 1, hosting<WideActor>()) {
    std::vector<RRef<WideActor>> all;
    for (size_t r = 0; r < n; ++r) all.push_back(cluster.here(0).spawn<WideActor>(r + 1));
    net.emplace(all, DataParallelOptions{.shard = Shard::all, .gather = gather, .reduce = reduce});
    cluster.await(net->ready()).value();
    optimizer.emplace(*net, optim::SGDOptions{.lr = 0.1});
  }
  ~Simulated() {
    optimizer.reset(), net.reset();
    cluster.settle();
  }
  // At that event w3 dies.
  template <class T>
  Result<T> await(const Future<T>& future) {
    while (!future.is_ready()) {
      if (events++ == dies_at) cluster.network().crash("w3");
      if (!cluster.step() && !future.is_ready()) throw std::logic_error("the future is never ready");
    }
    return *future.peek();
  }
  // Of one pass over that many calls. The error, if there is one.
  std::optional<Error> step(int calls = 1) {
    autograd::Context context(cluster.worker(0));
    Tensor sum = zeros({});
    for (int i = 0; i < calls; ++i) {
      const auto loss = await(net->mean<&WideActor::loss>(split(wave({8, 512}, 1 + i))));
      if (!loss.ok()) return loss.error();
      sum = sum + loss.value();
    }
    const auto passed = await(context.backward_async(sum));
    if (!passed.ok()) return passed.error();
    const auto stepped = await(optimizer->step_async(context));
    if (!stepped.ok()) return stepped.error();
    return {};
  }
  int64_t events = 0, dies_at = -1;
};

}  // namespace

TEST_CASE("with parts, a replica sends each parameter as often as uses and steps say, less its own piece") {
  const size_t n = GENERATE(2, 4);
  const Per gather = GENERATE(Per::use, Per::step), reduce = GENERATE(Per::use, Per::step);
  const int calls = GENERATE(1, 3);
  Simulated world(n, gather, reduce);
  CHECK_FALSE(world.step(calls));
  const auto sent = [&](size_t from) {
    uint64_t bytes = 0;
    for (size_t to = 1; to <= n; ++to)
      bytes += world.cluster.network().counters("w" + std::to_string(from), "w" + std::to_string(to)).bytes;
    return bytes;
  };
  std::vector<uint64_t> before;
  for (size_t r = 1; r <= n; ++r) before.push_back(sent(r));
  CHECK_FALSE(world.step(calls));
  const int want = (gather == Per::use ? 2 * calls : 1) + (reduce == Per::use ? calls : 1);
  for (size_t r = 1; r <= n; ++r) {
    const double bytes = double(sent(r) - before[r - 1]) / (double(n - 1) / double(n) * 4 * 8 * 512 * 512);
    INFO(n << " replicas, " << calls << " calls, once: " << (gather == Per::step) << (reduce == Per::step));
    CHECK(bytes == Approx(want).epsilon(0.02));
  }
}

TEST_CASE("a replica that dies at any time of a step with parts is named, and nothing is left") {
  const Per gather = GENERATE(Per::use, Per::step), reduce = GENERATE(Per::use, Per::step);
  int64_t all = 0;
  {
    Simulated world(3, gather, reduce);
    CHECK_FALSE(world.step());
    world.events = 0;
    CHECK_FALSE(world.step());
    all = world.events;
  }
  for (int64_t k = 0; k < 8; ++k) {
    Simulated world(3, gather, reduce);
    CHECK_FALSE(world.step());
    world.events = 0, world.dies_at = all * k / 8;
    const std::optional<Error> e = world.step();
    INFO("dies at event " << world.dies_at << " of " << all);
    REQUIRE(e);
    CHECK(e->kind() == ErrorKind::disconnected);
    CHECK(e->worker() == "w3");
    world.optimizer.reset(), world.net.reset();
    world.cluster.settle();
    for (size_t w = 0; w < 3; ++w)
      for (const char* what : {"collectives", "contexts", "backward_passes"}) {
        INFO(what << " of w" << w);
        CHECK(world.cluster.worker(w).metrics().at(what) == 0);
      }
  }
}
