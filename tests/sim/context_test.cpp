// Contexts on workers that the originator never called, while others die or links break.
#include <catch2/catch.hpp>

#include "actors/worker/worker.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

struct Scale : Actor {
  explicit Scale(double start) : w(full({2}, start)) { w.requires_grad_(); }
  Tensor forward(Tensor x) { return mul(x, w); }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor w;
  static constexpr auto remote = methods<&Scale::forward, &Scale::gradient>;
};

struct User : Actor {
  Task<Tensor> use(RRef<Scale> scale, Tensor x) { co_return co_await scale.call<&Scale::forward>(x); }
  Task<Tensor> twice(RRef<Scale> scale, Tensor x) {  // needs an exact pass
    Tensor y = co_await scale.call<&Scale::forward>(x);
    Tensor z = co_await scale.call<&Scale::forward>(y);
    co_return add(add(x, y), z);
  }
  /// A pass in the caller's context.
  Task<void> back(Tensor y) { co_await autograd::context_backward(y.sum()); }
  Task<Tensor> throws(RRef<Scale> scale, Tensor x) {
    (void)co_await scale.call<&Scale::forward>(x);
    throw std::runtime_error("after recording");
  }
  static constexpr auto remote = methods<&User::use, &User::twice, &User::back, &User::throws>;
};

const Tensor kX = tensor({1, 2}, float32);

// w0 drives a user on w1, who uses a scale on w2.
struct Scene {
  explicit Scene(uint64_t seed = 1, internal::net::Faults links = {.delay = 1ms})
      : cluster(seed, 3, hosting<Scale, User>()) {
    cluster.network().set_faults(links);
    scale = cluster.here(0).spawn<Scale>(2, 2.0);
    user = cluster.here(0).spawn<User>(1);
  }
  SimulatedCluster cluster;
  RRef<Scale> scale;
  RRef<User> user;
};

void nothing_left(SimulatedCluster& cluster, std::vector<size_t> on) {
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
  Scene s;
  {
    autograd::Context context(s.cluster.worker(0));
    auto y = s.cluster.await(s.user.call<&User::use>(s.scale, kX));
    REQUIRE(y.ok());
    REQUIRE(s.cluster.worker(2).metrics()["contexts"] == 1);
    s.cluster.network().crash("w1");
    auto done = s.cluster.await(context.backward_async({y.value().sum()}));
    REQUIRE_FALSE(done.ok());
    CHECK(done.error().worker() == "w1");
  }
  nothing_left(s.cluster, {0, 2});
}

TEST_CASE("a worker dies before it says whom it sent gradients: they count nowhere") {
  Scene s;
  {
    autograd::Context context(s.cluster.worker(0));
    Tensor x = kX.clone_data();
    x.requires_grad_();
    auto y = s.cluster.await(s.user.call<&User::use>(s.scale, x));
    REQUIRE(y.ok());
    s.cluster.network().set_faults("w1", "w0", {.delay = 1s});
    auto done = context.backward_async({y.value().sum()});
    s.cluster.network().schedule(4ms, [&] { s.cluster.network().crash("w1"); });
    auto failed = s.cluster.await(done);
    REQUIRE_FALSE(failed.ok());
    CHECK(failed.error().worker() == "w1");
    s.cluster.settle();
    auto gradient = s.cluster.await(s.scale.call<&Scale::gradient>());
    REQUIRE(gradient.ok());
    CHECK_FALSE(gradient.value().defined());
  }
  nothing_left(s.cluster, {0, 2});
}

TEST_CASE("a callee that records and then throws leaves nothing behind it") {
  Scene s;
  {
    autograd::Context context(s.cluster.worker(0));
    REQUIRE_FALSE(s.cluster.await(s.user.call<&User::throws>(s.scale, kX)).ok());
    REQUIRE(s.cluster.worker(2).metrics()["contexts"] == 1);
  }
  nothing_left(s.cluster, {0, 1, 2});
}

TEST_CASE("state that is made after the end of its context goes at once") {
  Scene s;
  s.cluster.network().set_faults("w1", "w2", {.delay = 80ms});  // both ways slower than the deadline
  s.cluster.network().set_faults("w2", "w1", {.delay = 80ms});
  {
    autograd::Context context(s.cluster.worker(0));
    auto y = s.cluster.await(s.user.with_timeout(100ms).call<&User::use>(s.scale, kX));
    REQUIRE_FALSE(y.ok());
    CHECK(y.error().kind() == ErrorKind::deadline);
  }
  nothing_left(s.cluster, {0, 1, 2});
}

TEST_CASE("the originator dies: all forget its contexts, also those that it never called") {
  Scene s;
  autograd::Context context(s.cluster.worker(0));
  REQUIRE(s.cluster.await(s.user.call<&User::use>(s.scale, kX)).ok());
  REQUIRE(s.cluster.worker(2).metrics()["contexts"] == 1);
  s.cluster.network().crash("w0");
  nothing_left(s.cluster, {1, 2});
}

TEST_CASE("a broken link between two workers fails the pass that needs it, although all three live") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    Scene s(seed, {.delay = 2ms, .jitter = 3ms});
    {
      autograd::Context context(s.cluster.worker(0));
      Tensor x = kX.clone_data();
      x.requires_grad_();
      auto y = s.cluster.await(s.user.call<&User::twice>(s.scale, x));
      REQUIRE(y.ok());
      auto done = context.backward_async({y.value().sum()});
      const Duration start = s.cluster.now();
      s.cluster.network().schedule(Duration(seed * 500'000),
                                   [&] { s.cluster.network().partition("w1", "w2"); });
      auto r = s.cluster.await(done);
      CHECK(s.cluster.now() - start < 8s);
      if (!r.ok()) {
        CHECK(r.error().kind() == ErrorKind::disconnected);
        CHECK_FALSE(r.error().worker() == "w0");
      }
      if (seed == 0) CHECK_FALSE(r.ok());
    }
    nothing_left(s.cluster, {0, 1, 2});
  }
}

TEST_CASE("a pass that another worker started fails when a link breaks that it takes behind its back") {
  int failed = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    Scene s(seed, {.delay = 2ms, .jitter = 3ms});
    auto there = s.cluster.here(0).spawn<Scale>(1, 2.0);
    auto starter = s.cluster.here(0).spawn<User>(2);
    {
      autograd::Context context(s.cluster.worker(0));
      Tensor x = kX.clone_data();
      x.requires_grad_();
      auto y = s.cluster.await(there.call<&Scale::forward>(x));
      REQUIRE(y.ok());
      auto z = ops::add(y.value(), s.cluster.await(there.call<&Scale::forward>(y.value())).value());
      auto done = starter.call<&User::back>(z);  // w2 to w0 to w1, and from there to w0, twice
      const Duration start = s.cluster.now();
      s.cluster.network().schedule(Duration(seed * 700'000),
                                   [&] { s.cluster.network().partition("w0", "w1"); });
      const auto r = s.cluster.await(done);
      CHECK(s.cluster.now() - start < 8s);
      failed += !r.ok();
      if (!r.ok()) CHECK(r.error().kind() == ErrorKind::disconnected);
    }
    nothing_left(s.cluster, {0, 1, 2});
  }
  CHECK(failed > 10);
}

TEST_CASE("a pass that meets a worker that has lost the context's originator names that loss") {
  Scene s;
  {
    autograd::Context context(s.cluster.worker(0));
    Tensor x = kX.clone_data();
    x.requires_grad_();
    auto starter = s.cluster.here(0).spawn<User>(1);
    auto y = s.cluster.await(s.user.call<&User::use>(s.scale, x));  // w1 has called w2
    REQUIRE(y.ok());
    s.cluster.network().partition("w0", "w2");
    s.cluster.settle();
    REQUIRE(s.cluster.worker(2).metrics()["contexts"] == 0);
    const auto r = s.cluster.await(starter.call<&User::back>(y.value()));  // w1 to w0 to w1 to w2
    REQUIRE_FALSE(r.ok());
    INFO(r.error().what());
    CHECK(r.error().kind() == ErrorKind::disconnected);
    CHECK(r.error().worker() == "w0");
    CHECK_THAT(r.error().what(), Catch::Contains("the context has ended on worker w2 with its originator"));
  }
  nothing_left(s.cluster, {0, 1, 2});
}

TEST_CASE("every other worker dies after the forward passes: those of all survivors fail in time") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    SimulatedCluster cluster(seed, 5, hosting<Scale, User>());
    cluster.network().set_faults({.delay = 1ms, .jitter = 2ms});
    {
      std::vector<RRef<Scale>> scales;
      std::vector<std::unique_ptr<autograd::Context>> contexts;
      std::vector<Tensor> results;
      for (size_t from : {0, 2, 4}) {  // through w1, the next survivor and w3
        contexts.push_back(std::make_unique<autograd::Context>(cluster.worker(from)));
        Tensor y = kX;
        for (size_t on : {size_t{1}, (from + 2) % 6, size_t{3}}) {
          scales.push_back(cluster.here(from).spawn<Scale>(on, 2.0));
          const auto r = cluster.await(scales.back().call<&Scale::forward>(y));
          REQUIRE(r.ok());
          y = r.value();
        }
        results.push_back(y);
      }
      std::vector<Future<void>> passes;
      if (seed % 2) cluster.network().crash("w1"), cluster.network().crash("w3");
      for (size_t i = 0; i < 3; ++i) passes.push_back(contexts[i]->backward_async({results[i].sum()}));
      if (seed % 2 == 0) {
        cluster.network().schedule(Duration(seed * 50'000), [&] { cluster.network().crash("w3"); });
        cluster.network().schedule(Duration(seed * 25'000), [&] { cluster.network().crash("w1"); });
      }
      const Duration start = cluster.now();
      for (size_t i = 0; i < 3; ++i) {
        INFO("the pass of w" << 2 * i);
        const auto done = cluster.await(passes[i]);
        REQUIRE_FALSE(done.ok());
        CHECK(done.error().kind() == ErrorKind::disconnected);
        CHECK((done.error().worker() == "w1" || done.error().worker() == "w3"));
      }
      CHECK(cluster.now() - start < 2s);
      results.clear(), scales.clear();
      while (!contexts.empty()) contexts.pop_back();  // the frames of scopes are a stack
    }
    nothing_left(cluster, {0, 2, 4});
  }
}
