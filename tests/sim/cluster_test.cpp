// Whole clusters on a bad network, in virtual time: the same seed gives the same run.
#include <catch2/catch.hpp>

#include "actors/membership/members.h"
#include "actors/worker/worker.h"
#include "core/base/generator.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

struct Scale : Actor {
  explicit Scale(double start) : w(full({2}, start)) { w.requires_grad_(); }
  Tensor forward(Tensor x) { return mul(x, w); }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensors parameters() override { return {w}; }
  Tensor w;
  static constexpr auto remote = methods<&Scale::forward, &Scale::gradient>;
};

struct User : Actor {
  Task<Tensor> use(RRef<Scale> scale, Tensor x) { co_return co_await scale.call<&Scale::forward>(x); }
  static constexpr auto remote = methods<&User::use>;
};

struct StepResult {
  std::optional<Error> error;
  std::vector<float> gradient;  // of the first actor
  Duration took{0};
  bool operator==(const StepResult& o) const {
    return error.has_value() == o.error.has_value() &&
           (!error || std::string(error->what()) == o.error->what()) && gradient == o.gradient &&
           took == o.took;
  }
};

enum class Graph { chain, diamonds };  // the second needs exact passes

// One step over three workers; worker `victim` (if any) crashes `after`.
StepResult one_step(Graph graph, uint64_t seed, std::optional<int> victim = {}, Duration after = 0ns) {
  SimulatedCluster cluster(seed, 4, hosting<Scale>());
  cluster.network().set_faults({.delay = 1ms, .jitter = 3ms, .bytes_per_second = 1e6});
  if (victim)
    cluster.network().schedule(after, [&, v = *victim] { cluster.network().crash("w" + std::to_string(v)); });
  StepResult outcome;
  {
    auto a = cluster.here(0).spawn<Scale>(1, 2.0), b = cluster.here(0).spawn<Scale>(2, 3.0),
         c = cluster.here(0).spawn<Scale>(3, 5.0);
    optim::Distributed<optim::SGD> optimizer({a, b, c}, {.lr = 0.1});
    autograd::Context context(cluster.worker(0));
    const Tensor x = tensor({1, 10}, float32);
    Result<Tensor> y = Tensor();
    if (graph == Graph::chain) {
      y = cluster.await(c.call<&Scale::forward>(b.call<&Scale::forward>(a.call<&Scale::forward>(x))));
    } else {
      const auto h = cluster.await(a.call<&Scale::forward>(x));
      const auto k = h.ok() ? cluster.await(b.call<&Scale::forward>(h.value())) : h;
      y = k.ok() ? cluster.await(c.call<&Scale::forward>(ops::add(h.value(), k.value()))) : k;
      if (y.ok()) y = ops::add(y.value(), ops::add(h.value(), k.value()));
    }
    if (!y.ok()) outcome.error = y.error();
    if (!outcome.error) {
      auto done = cluster.await(context.backward_async({y.value().sum()}));
      if (!done.ok()) outcome.error = done.error();
    }
    if (!outcome.error) {
      auto gradient = cluster.await(a.call<&Scale::gradient>());
      if (gradient.ok())
        outcome.gradient = gradient.value().to_vector<float>();
      else
        outcome.error = gradient.error();
    }
    if (!outcome.error) {
      auto step = cluster.await(optimizer.step_async(context));
      if (!step.ok()) outcome.error = step.error();
    }
    outcome.took = cluster.now();
    (void)cluster.await(context.end());
  }
  cluster.settle();
  for (size_t w = 0; w < 4; ++w) {
    if (victim && static_cast<int>(w) == *victim) continue;
    auto m = cluster.worker(w).metrics();
    INFO("worker " << w);
    for (const char* counter : {"contexts", "send_nodes", "receive_nodes", "backward_passes", "owned_objects",
                                "pending_references", "borrowed_references", "pending_calls", "actors"}) {
      INFO(counter);
      REQUIRE(m[counter] == 0);
    }
  }
  return outcome;
}

}  // namespace

TEST_CASE("a step gives the same gradients whatever the delays, and the same run for the same seed") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    const StepResult first = one_step(Graph::chain, seed);
    REQUIRE_FALSE(first.error);
    REQUIRE(first.gradient == std::vector<float>{15, 150});
    REQUIRE(first == one_step(Graph::chain, seed));
    const StepResult exact = one_step(Graph::diamonds, seed);
    REQUIRE_FALSE(exact.error);
    REQUIRE(exact.gradient == std::vector<float>{24, 240});
    REQUIRE(exact == one_step(Graph::diamonds, seed));
  }
}

TEST_CASE("a worker that crashes at any time during a step is named, and leaves nothing on the others") {
  const Graph graph = GENERATE(Graph::chain, Graph::diamonds);
  int failed = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Generator random(seed);
    const int victim = 1 + static_cast<int>(random.below(3));
    const Duration after = Duration(random.below(60'000'000));
    INFO("seed " << seed << ": w" << victim << " crashes after " << after.count() << " ns");
    const StepResult outcome = one_step(graph, seed, victim, after);
    if (!outcome.error) continue;
    ++failed;
    REQUIRE(outcome.error->kind() == ErrorKind::disconnected);
    REQUIRE(outcome.error->worker() == "w" + std::to_string(victim));
    REQUIRE(outcome.took < 6s);
  }
  CHECK(failed > 50);  // most crashes come before the step has ended
}

TEST_CASE("a partition is noticed by silence, in bounded time") {
  SimulatedCluster cluster(1, 2, hosting<Scale>());
  cluster.network().set_faults({.delay = 1ms});
  auto a = cluster.here(0).spawn<Scale>(1, 2.0);
  NoGradGuard no_grad;
  REQUIRE(cluster.await(a.call<&Scale::forward>(tensor({1, 2}, float32))).ok());
  cluster.network().partition("w0", "w1");
  const Duration start = cluster.now();
  auto r = cluster.await(a.call<&Scale::forward>(tensor({1, 2}, float32)));
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().kind() == ErrorKind::disconnected);
  CHECK(r.error().worker() == "w1");
  CHECK(cluster.now() - start < 7s);
}

TEST_CASE("an answer after the deadline is dropped, and the actor goes on") {
  SimulatedCluster cluster(1, 2, hosting<Scale>());
  cluster.network().set_faults({.delay = 50ms});
  auto a = cluster.here(0).spawn<Scale>(1, 2.0);
  NoGradGuard no_grad;
  const Tensor x = tensor({1, 2}, float32);
  auto late = cluster.await(a.with_timeout(60ms).call<&Scale::forward>(x));
  REQUIRE_FALSE(late.ok());
  CHECK(late.error().kind() == ErrorKind::deadline);
  CHECK(cluster.await(a.call<&Scale::forward>(x)).ok());
}

TEST_CASE("a reference handed on before its actor exists works, and everything is released") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    SimulatedCluster cluster(seed, 3, hosting<Scale, User>());
    cluster.network().set_faults("w0", "w2", {.delay = 40ms});  // the creation is slow, the way round is fast
    cluster.network().set_faults("w0", "w1", {.delay = 1ms, .jitter = 5ms});
    cluster.network().set_faults("w1", "w2", {.delay = 1ms, .jitter = 5ms});
    {
      NoGradGuard no_grad;
      auto a = cluster.here(0).spawn<Scale>(2, 4.0);
      auto user = cluster.here(0).spawn<User>(1);
      auto y = cluster.await(user.call<&User::use>(a, tensor({1, 2}, float32)));
      INFO((y.ok() ? "" : y.error().what()));
      REQUIRE(y.ok());
      REQUIRE(y.value().to_vector<float>() == std::vector<float>{4, 8});
    }
    cluster.settle();
    for (size_t w = 0; w < 3; ++w) {
      auto m = cluster.worker(w).metrics();
      REQUIRE(m["owned_objects"] == 0);
      REQUIRE(m["pending_references"] == 0);
      REQUIRE(m["borrowed_references"] == 0);
    }
  }
}

TEST_CASE("when one of two connections between workers breaks both sides lose each other, and all goes") {
  const bool first = GENERATE(true, false);
  SimulatedCluster cluster(1, 2, hosting<Scale>());
  cluster.network().set_faults({.delay = 1ms});
  {
    NoGradGuard no_grad;
    const Tensor x = tensor({1, 2}, float32);
    auto a = cluster.here(0).spawn<Scale>(1, 2.0),
         b = cluster.here(1).spawn<Scale>(0, 3.0);  // each opens its own
    auto there = a.call<&Scale::forward>(x), back = b.call<&Scale::forward>(x);
    REQUIRE(cluster.await(there).ok());
    REQUIRE(cluster.await(back).ok());
    cluster.network().reset(first ? "w0" : "w1", first ? "w1" : "w0");
    for (const auto& r :
         {cluster.await(a.call<&Scale::forward>(x)), cluster.await(b.call<&Scale::forward>(x))}) {
      REQUIRE_FALSE(r.ok());
      CHECK(r.error().kind() == ErrorKind::disconnected);
    }
  }
  cluster.settle();
  for (size_t w : {0, 1}) {
    CHECK(cluster.worker(w).members().loss(static_cast<WorkerId>(1 - w)));
    for (const char* what : {"actors", "owned_objects", "borrowed_references"})
      CHECK(cluster.worker(w).metrics()[what] == 0);
  }
}

TEST_CASE(
    "every second message is lost on the way and sent again: a reference handed on works, nothing is left") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    INFO("seed " << seed);
    SimulatedCluster cluster(seed, 3, hosting<Scale, User>());
    cluster.network().set_faults(
        {.delay = 1ms, .jitter = 5ms, .drop = 0.5, .duplicate = 0.3, .resend = 200ms});
    {
      NoGradGuard no_grad;
      auto a = cluster.here(0).spawn<Scale>(1, 4.0);
      auto user = cluster.here(0).spawn<User>(2);
      auto y = cluster.await(user.call<&User::use>(a, tensor({1, 2}, float32)));
      REQUIRE(y.ok());
      REQUIRE(y.value().to_vector<float>() == std::vector<float>{4, 8});
    }
    cluster.settle();
    CHECK(cluster.network().counters().dropped > 2);
    for (size_t w = 0; w < 3; ++w)
      for (const char* what : {"owned_objects", "pending_references", "borrowed_references", "actors"})
        REQUIRE(cluster.worker(w).metrics()[what] == 0);
  }
}
