// Contexts on workers that the originator never called, while others die or links break.
#include <catch2/catch.hpp>

#include "tests/support/sim_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::SimCluster;
using namespace std::chrono_literals;

namespace {

struct Scale : Actor {
  explicit Scale(double start) : w(Tensor::full({2}, start)) { w.set_requires_grad(); }
  Tensor forward(Tensor x) { return mul(x, w); }
  Tensor w;
  static constexpr auto remote = methods<Scale, double>("forward", &Scale::forward);
};

struct User : Actor {
  Task<Tensor> use(RRef<Scale> scale, Tensor x) { co_return co_await scale.call<&Scale::forward>(x); }
  Task<Tensor> twice(RRef<Scale> scale, Tensor x) {  // needs an exact pass
    Tensor y = co_await scale.call<&Scale::forward>(x);
    Tensor z = co_await scale.call<&Scale::forward>(y);
    co_return add(add(x, y), z);
  }
  Task<Tensor> throws(RRef<Scale> scale, Tensor x) {
    (void)co_await scale.call<&Scale::forward>(x);
    throw std::runtime_error("after recording");
  }
  static constexpr auto remote =
      methods<User>("use", &User::use, "twice", &User::twice, "throws", &User::throws);
};

const Tensor kX = Tensor::of<float>({1, 2});

void nothing_left(SimCluster& cluster, std::vector<size_t> on) {
  cluster.settle();
  for (size_t w : on) {
    auto m = cluster.worker(w).metrics();
    INFO("worker " << w);
    for (const char* counter : {"contexts", "send_nodes", "receive_nodes", "backward_passes"}) {
      INFO(counter);
      REQUIRE(m[counter] == 0);
    }
  }
}

}  // namespace

TEST_CASE("a worker in the middle dies: the one behind it forgets the context with its originator") {
  SimCluster cluster(1, 3, hosting<Scale, User>());
  cluster.network().set_faults({.delay = 1ms});
  auto scale = cluster.spawn<Scale>(0, 2, 2.0);
  auto user = cluster.spawn<User>(0, 1);
  {
    autograd::Context context(cluster.worker(0));
    auto y = cluster.await(user.call<&User::use>(scale, kX));
    REQUIRE(y.ok());
    REQUIRE(cluster.worker(2).metrics()["contexts"] == 1);
    cluster.network().crash("w1");
    auto done = cluster.await(context.backward_async({y.value().sum()}));
    REQUIRE_FALSE(done.ok());
    CHECK(done.error().worker() == "w1");
  }
  nothing_left(cluster, {0, 2});
}

TEST_CASE("a callee that records and then throws leaves nothing behind it") {
  SimCluster cluster(1, 3, hosting<Scale, User>());
  cluster.network().set_faults({.delay = 1ms});
  auto scale = cluster.spawn<Scale>(0, 2, 2.0);
  auto user = cluster.spawn<User>(0, 1);
  {
    autograd::Context context(cluster.worker(0));
    auto y = cluster.await(user.call<&User::throws>(scale, kX));
    REQUIRE_FALSE(y.ok());
    REQUIRE(cluster.worker(2).metrics()["contexts"] == 1);
  }
  nothing_left(cluster, {0, 1, 2});
}

TEST_CASE("state that is made after the end of its context goes at once") {
  SimCluster cluster(1, 3, hosting<Scale, User>());
  cluster.network().set_faults({.delay = 1ms});
  cluster.network().set_faults("w1", "w2", {.delay = 80ms});  // both ways slower than the deadline
  cluster.network().set_faults("w2", "w1", {.delay = 80ms});
  auto scale = cluster.spawn<Scale>(0, 2, 2.0);
  auto user = cluster.spawn<User>(0, 1);
  {
    autograd::Context context(cluster.worker(0));
    auto y = cluster.await(user.with_timeout(100ms).call<&User::use>(scale, kX));
    REQUIRE_FALSE(y.ok());
    CHECK(y.error().kind() == ErrorKind::deadline);
  }
  nothing_left(cluster, {0, 1, 2});
}

TEST_CASE("the originator dies: all forget its contexts, also those that it never called") {
  SimCluster cluster(1, 3, hosting<Scale, User>());
  cluster.network().set_faults({.delay = 1ms});
  auto scale = cluster.spawn<Scale>(0, 2, 2.0);
  auto user = cluster.spawn<User>(0, 1);
  autograd::Context context(cluster.worker(0));
  auto y = cluster.await(user.call<&User::use>(scale, kX));
  REQUIRE(y.ok());
  cluster.network().crash("w0");
  cluster.settle();
  for (size_t w : {1, 2}) {
    auto m = cluster.worker(w).metrics();
    INFO("worker " << w);
    REQUIRE(m["contexts"] == 0);
    REQUIRE(m["send_nodes"] == 0);
  }
}

TEST_CASE("a broken link between two workers fails the pass that needs it, although all three live") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    SimCluster cluster(seed, 3, hosting<Scale, User>());
    cluster.network().set_faults({.delay = 2ms, .jitter = 3ms});
    auto scale = cluster.spawn<Scale>(0, 2, 2.0);
    auto user = cluster.spawn<User>(0, 1);
    {
      autograd::Context context(cluster.worker(0));
      Tensor x = kX.clone_data();
      x.set_requires_grad();
      auto y = cluster.await(user.call<&User::twice>(scale, x));
      REQUIRE(y.ok());
      auto done = context.backward_async({y.value().sum()});
      const Duration start = cluster.now();
      cluster.network().schedule(Duration(seed * 500'000), [&] { cluster.network().partition("w1", "w2"); });
      auto r = cluster.await(done);
      CHECK(cluster.now() - start < 8s);
      if (!r.ok()) {
        CHECK(r.error().kind() == ErrorKind::disconnected);
        CHECK_FALSE(r.error().worker() == "w0");
      }
      if (seed == 0) CHECK_FALSE(r.ok());
    }
    nothing_left(cluster, {0, 1, 2});
  }
}
