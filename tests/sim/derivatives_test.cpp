// Random programs with recorded passes on the simulated network: the numbers of one thread whatever the
// delays, and where a worker dies, at any event, an error that names it, and nothing left on the others. With
// steps that wait, too.
#include <catch2/catch.hpp>

#include "actors/worker/worker.h"
#include "core/base/log.h"
#include "tests/support/derivative_programs.h"
#include "tests/support/seeds.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::testing::derivatives;
using namespace std::chrono_literals;

namespace {

struct Quiet {
  Quiet() { internal::log::set_level(internal::log::Level::off); }
  ~Quiet() { internal::log::set_level(internal::log::Level::warning); }
};

// The network and the waits of the program that runs.
internal::net::Network* network = nullptr;
int waits_left = -1;  // until one fails; negative: none does
int begun = 0, now_waiting = 0;

struct Counted {
  Counted() { ++now_waiting; }
  Counted(const Counted&) = delete;
  ~Counted() { --now_waiting; }
};

// Its tensor, whose gradient comes when some time has passed, or at once.
struct Waits : autograd::Function<Waits> {
  struct Ctx : autograd::FunctionCtx {
    int number = 0;
  };
  static Tensor forward(Ctx& ctx, Tensor x) {
    static int made = 0;
    ctx.number = made++;
    ctx.set_materialize_grads(ctx.number % 2 == 0);
    return x * 1;
  }
  static Task<Tensor> backward(Ctx& ctx, Tensors grads) {
    const Counted counted;
    ++begun;
    const int number = ctx.number;
    if (number % 5) {
      Promise<void> later;
      network->schedule(number % 7 * 500us, [later] { later.set(); });
      co_await later.future();
    }
    if (waits_left == 0) throw_error(ErrorKind::failed, "[waits] out of luck");
    --waits_left;
    co_return std::move(grads[0]);
  }
};

// Programs do so while one is alive.
struct Waiting {
  Waiting() {
    result_step = [](const Tensor& t) { return Waits::apply(t); };
  }
  ~Waiting() { result_step = nullptr; }
};

struct Played {
  std::optional<Numbers> numbers;
  std::optional<Error> error;
  int events = 0;
};

// `dies`: the event before which the victim dies; negative: never.
Played play_simulated(uint64_t seed, int dies, WorkerId victim) {
  SimulatedCluster cluster(seed, 4, hosting<Weighted>());
  cluster.network().set_faults({.delay = 1ms, .jitter = seed % 2 ? 2ms : 0ms});
  network = &cluster.network();
  const std::string name = "w" + std::to_string(victim);
  Played out;
  const auto wait = [&](const auto& future) {
    while (!future.is_ready()) {
      if (out.events++ == dies) cluster.network().crash(name);
      if (!cluster.step() && !future.is_ready()) throw std::logic_error("nothing is left to happen");
    }
    const auto& result = *future.peek();
    if (!result.ok()) throw result.error();
    if constexpr (requires { result.value(); }) return result.value();
  };
  {
    autograd::Context context(cluster.worker(0));
    OnActors world(
        context,
        [&](WorkerId on, int64_t start, bool hooked) {
          return cluster.here(0).spawn<Weighted>(size_t(on), start, hooked);
        },
        wait);
    try {
      out.numbers = play(seed, world);
    } catch (const Error& e) {
      out.error = e;
    }
    if (dies >= 0 || out.error) {  // others go on in the same context
      cluster.settle();
      waits_left = -1;
      const WorkerId other = victim % 3 + 1;
      auto unit = cluster.here(0).spawn<Weighted>(other, int64_t{3}, false);
      const Tensor x = numbers(1, 2).requires_grad_();
      const auto y = cluster.await(unit.call<&Weighted::run>(int64_t{2}, Tensors{x, x}));
      REQUIRE(y.ok());
      const auto g = cluster.await(context.grad_async({y.value()[1].sum()}, {x}, {}, {.create_graph = true}));
      REQUIRE(g.ok());
      REQUIRE(g.value()[0].to_vector<double>() == std::vector<double>{2, 4});
      const auto h = cluster.await(context.grad_async({g.value()[0].sum()}, {x}));
      REQUIRE(h.ok());
      REQUIRE(h.value()[0].to_vector<double>() == std::vector<double>{2, 2});
    }
  }
  cluster.settle();
  REQUIRE((now_waiting == 0 || dies >= 0));
  for (size_t w = 0; w < 4; ++w) {
    if (dies >= 0 && w == victim) continue;
    auto m = cluster.worker(w).metrics();
    for (const char* counter : {"contexts", "send_nodes", "receive_nodes", "backward_passes"}) {
      INFO("worker " << w << ", " << counter);
      REQUIRE(m[counter] == 0);
    }
  }
  return out;
}

Numbers here(uint64_t seed) {
  OnOneThread world;
  return play(seed, world);
}

// Each of `seeds` programs, with each worker dead at each event.
struct Deaths {
  int died = 0, went_on = 0;
};
Deaths die_at_any_event(uint64_t first, uint64_t seeds) {
  const Quiet quiet;
  Deaths deaths;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const Numbers want = here(seed);
    if (too_large(want)) continue;
    const int events = play_simulated(seed, -1, 1).events;
    for (int i = 0; i < 3 * events; ++i) {
      const int at = i / 3;
      const auto victim = static_cast<WorkerId>(1 + i % 3);
      INFO("seed " << seed << ", event " << at << " of " << events << ", w" << victim);
      const Played got = play_simulated(seed, at, victim);
      REQUIRE(now_waiting == 0);
      if (got.error) {
        ++deaths.died;
        INFO(got.error->what());
        REQUIRE(got.error->kind() == ErrorKind::disconnected);
        REQUIRE(got.error->worker() == "w" + std::to_string(victim));
      } else {  // the program had no need of it any more
        ++deaths.went_on;
        REQUIRE(*got.numbers == want);
      }
    }
  }
  return deaths;
}

}  // namespace

TEST_CASE("random programs with recorded passes have the numbers of one thread on the simulated network") {
  size_t compared = 0;
  for (uint64_t seed = 30000; seed < 30300; ++seed) {
    INFO("seed " << seed);
    const Numbers want = here(seed);
    if (too_large(want)) continue;
    ++compared;
    const Played got = play_simulated(seed, -1, 1);
    if (got.error) FAIL(got.error->what());
    REQUIRE(*got.numbers == want);
  }
  CHECK(compared > 200);
}

TEST_CASE("a worker that dies at any event of a program with recorded passes is named, and leaves nothing") {
  const auto [died, went_on] = die_at_any_event(40000, 30);
  CHECK(died > 3000);
  CHECK(went_on > 100);
}

TEST_CASE("a recorded pass whose worker dies takes back what it recorded and added on the others") {
  Quiet quiet;
  int failed = 0;
  for (const bool exact : {false, true})
    for (int dies = 0; dies < 60; ++dies) {
      INFO((exact ? "exact" : "fast") << " pass, event " << dies);
      SimulatedCluster cluster(uint64_t(dies), 4, hosting<Weighted>());
      cluster.network().set_faults({.delay = 1ms, .jitter = 1ms});
      std::vector<RRef<Weighted>> units;
      for (size_t w : {1, 2, 3}) units.push_back(cluster.here(0).spawn<Weighted>(w, int64_t(w) + 1, false));
      const auto get = [&](const auto& future) { return cluster.await(future).value(); };
      const Tensor x = numbers(1, 2).requires_grad_();
      {
        autograd::Context context(cluster.worker(0));
        Tensor y = x;
        for (auto& unit : units) y = get(unit.call<&Weighted::run>(int64_t{2}, Tensors{y, y}))[1];
        if (exact) y = ops::add(y, get(units[0].call<&Weighted::run>(int64_t{0}, Tensors{y, y}))[0]);
        REQUIRE(cluster.await(context.backward_async(Tensors{y.sum()}, {}, {.retain_graph = true})).ok());
        const auto before = context.grad(x).to_vector<double>();
        const auto sends = [&](size_t w) { return cluster.worker(w).metrics()["send_nodes"]; };
        const int64_t at_0 = sends(0), at_1 = sends(1), at_3 = sends(3);
        auto done = context.backward_async(Tensors{y.sum()}, {}, {.create_graph = true});
        for (int i = 0; i < dies && !done.is_ready(); ++i) cluster.step();
        if (done.is_ready()) break;
        cluster.network().crash("w2");
        const auto result = cluster.await(done);
        cluster.settle();
        if (result.ok()) continue;  // w2 had done its part
        ++failed;
        REQUIRE(result.error().worker() == "w2");
        REQUIRE(context.grad(x).to_vector<double>() == before);
        REQUIRE_FALSE(context.grad(x).requires_grad());
        REQUIRE(sends(0) == at_0);
        REQUIRE(sends(1) == at_1);
        REQUIRE(sends(3) == at_3);
        y = {};
      }
      cluster.settle();
      for (size_t w : {0, 1, 3}) REQUIRE(cluster.worker(w).metrics()["send_nodes"] == 0);
    }
  CHECK(failed > 10);
}

TEST_CASE("random programs with steps that wait have the numbers of those without") {
  Waiting waiting;
  begun = 0;
  size_t compared = 0;
  for (uint64_t seed = 50000; seed < 50000 + seeds(200); ++seed) {
    INFO("seed " << seed);
    const Numbers want = here(seed);
    if (too_large(want)) continue;
    ++compared;
    const Played got = play_simulated(seed, -1, 1);
    if (got.error) FAIL(got.error->what());
    REQUIRE(*got.numbers == want);
  }
  CHECK(compared > seeds(200) / 2);
  CHECK(begun > int(compared));
}

TEST_CASE("a step that waits and fails fails its pass, and leaves nothing") {
  Waiting waiting;
  int failed = 0;
  for (uint64_t seed = 60000; seed < 60000 + seeds(40); ++seed) {
    const Numbers want = here(seed);
    if (too_large(want)) continue;
    begun = 0;
    (void)play_simulated(seed, -1, 1);
    for (int at = 0, all = begun; at < all; ++at) {
      INFO("seed " << seed << ", wait " << at << " of " << all);
      waits_left = at;
      const Played got = play_simulated(seed, -1, 1);
      waits_left = -1;
      if (!got.error) continue;
      ++failed;
      REQUIRE_THAT(got.error->what(), Catch::Contains("[waits] out of luck"));
    }
  }
  CHECK(failed > int(seeds(40)));
}

TEST_CASE("a worker that dies at any event of a program with steps that wait is named, and leaves nothing") {
  Waiting waiting;
  const auto [died, went_on] = die_at_any_event(70000, seeds(8));
  CHECK(died > int(seeds(8)));
  CHECK(went_on > int(seeds(8)));
}
