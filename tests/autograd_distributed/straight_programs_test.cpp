// Random programs of calls whose results go straight from worker to worker: futures, references, callers
// that are actors, errors, and results that nobody wants.
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

/// Passes on what it gets.
struct Relay : Actor {
  Tensors forward(Tensors in) { return in; }
  Tensors first(Tensors in, Tensors) { return in; }  // the other one is not used
  Tensors fails(Tensors) { throw std::runtime_error("no luck"); }
  /// This one is the caller, and so is the one that it calls.
  Task<Tensors> via(Tensors in, RRef<Relay> a, RRef<Relay> b) { co_return co_await b(a(in)); }
  Task<Tensors> deep(Tensors in, RRef<Relay> a, RRef<Relay> b) {
    co_return co_await a(b.call<&Relay::via>(in, b, a));
  }
  static constexpr auto remote =
      methods<&Relay::forward, &Relay::first, &Relay::fails, &Relay::via, &Relay::deep>;
};

// As OnActors, but each result goes on through other actors before it is looked at.
template <class Spawn, class Wait>
class OnRelays : public OnActors<Spawn, Wait> {
 public:
  using Base = OnActors<Spawn, Wait>;
  OnRelays(autograd::Context& context, Spawn spawn, Wait wait, std::vector<RRef<Relay>> relays)
      : Base(context, spawn, wait), relays_(std::move(relays)) {}
  Tensors run(size_t unit, int64_t step, const Tensors& in) {
    const auto made = [&] { return this->units_[unit].template call<&Weighted::run>(step, in); };
    auto &r = next(), &q = next(), &p = next();
    switch (++calls_ % 8) {
      case 0:
        return this->wait_(q(r(made())));
      case 1:
        return this->wait_(p(q(r(made()))));
      case 2:
        return this->wait_(q.template call<&Relay::first>(r(made()), p(in)));
      case 3:  // three levels of callers
        return this->wait_(q(r.template call<&Relay::via>(made(), p, q)));
      case 4:
        return this->wait_(p(q.template call<&Relay::deep>(made(), r, p)));
      case 5: {  // a reference, with two users
        const auto h = this->units_[unit].template remote<&Weighted::run>(step, in);
        return this->wait_(q.template call<&Relay::first>(h, r(h)));
      }
      case 6: {  // one that goes straight, and one that is kept
        const auto kept = p(in);
        return this->wait_(q.template call<&Relay::first>(r(made()), kept));
      }
      default:
        given_up(q, r, p, in);
        return this->wait_(q(r(made())));
    }
  }
  Tensors through(size_t unit, int64_t step, const Tensors& in, size_t next_unit) {
    auto &r = next(), &q = next();
    return this->wait_(
        q(r(this->units_[unit].template call<&Weighted::through>(step, in, this->units_[next_unit]))));
  }

 private:
  // Chains whose results nobody gets: one fails, and others are not wanted.
  void given_up(RRef<Relay>& q, RRef<Relay>& r, RRef<Relay>& p, const Tensors& in) {
    auto dropped = q(r(p(in))), cancelled = p(r.template call<&Relay::via>(in, q, p));
    bool failed = false;
    try {
      (void)this->wait_(q(r.template call<&Relay::fails>(p(in))));
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::failed) throw;
      failed = true;
    }
    CHECK(failed);
    dropped = {};
    cancelled.cancel();
  }
  RRef<Relay>& next() { return relays_[++turn_ % relays_.size()]; }
  std::vector<RRef<Relay>> relays_;
  size_t turn_ = 0, calls_ = 0;
};

struct Played {
  std::optional<Numbers> numbers;
  std::optional<Error> error;
  int events = 0;
  int64_t straight = 0;
};

// `dies`: the event before which the victim dies; negative: never.
Played play_straight(uint64_t seed, int dies, size_t victim) {
  SimulatedCluster cluster(seed, 5, hosting<Weighted, Relay>());
  cluster.network().set_faults({.delay = 1ms, .jitter = seed % 2 ? 2ms : 0ms});
  Played out;
  const auto wait = [&](const auto& future) {
    while (!future.is_ready()) {
      if (out.events++ == dies) cluster.network().crash("w" + std::to_string(victim));
      if (!cluster.step() && !future.is_ready()) throw std::logic_error("nothing is left to happen");
    }
    const auto& result = *future.peek();
    if (!result.ok()) throw result.error();
    if constexpr (requires { result.value(); }) return result.value();
  };
  {
    autograd::Context context(cluster.worker(0));
    std::vector<RRef<Relay>> relays;
    for (size_t w = 1; w < 5; ++w) relays.push_back(cluster.here(0).spawn<Relay>(w));
    OnRelays world(
        context,
        [&](WorkerId on, int64_t start, bool hooked) {
          return cluster.here(0).spawn<Weighted>(size_t(on), start, hooked);
        },
        wait, relays);
    try {
      out.numbers = play(seed, world);
    } catch (const Error& e) {
      out.error = e;
    }
  }
  cluster.settle();
  for (size_t w = 0; w < 5; ++w) {
    auto m = cluster.worker(w).metrics();
    out.straight += m["arguments_sent"];
    if (dies >= 0 && w == victim) continue;
    for (const char* counter : {"contexts", "send_nodes", "receive_nodes", "backward_passes", "late_calls",
                                "early_arguments", "pending_calls", "unanswered_calls"}) {
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

}  // namespace

TEST_CASE("random programs whose results go straight have the numbers of one thread") {
  size_t compared = 0;
  int64_t straight = 0;
  for (uint64_t seed = 50000; seed < 50000 + seeds(500); ++seed) {
    INFO("seed " << seed);
    const Numbers want = here(seed);
    if (too_large(want)) continue;
    ++compared;
    const Played got = play_straight(seed, -1, 1);
    if (got.error) FAIL(got.error->what());
    REQUIRE(*got.numbers == want);
    straight += got.straight;
  }
  CHECK(compared > 150);
  CHECK(straight > 1000);
}

TEST_CASE(
    "a worker that dies at any event of a program whose results go straight is named, and leaves nothing") {
  internal::log::set_level(internal::log::Level::off);
  int died = 0;
  for (uint64_t seed = 60000; seed < 60006; ++seed) {
    const Numbers want = here(seed);
    if (too_large(want)) continue;
    const int events = play_straight(seed, -1, 1).events;
    for (int at = 0; at < events; at += 3) {
      const auto victim = static_cast<size_t>(1 + at / 3 % 4);
      INFO("seed " << seed << ", event " << at << " of " << events << ", w" << victim);
      const Played got = play_straight(seed, at, victim);
      if (got.error) {
        ++died;
        INFO(got.error->what());
        REQUIRE(got.error->kind() == ErrorKind::disconnected);
        REQUIRE(got.error->worker() == "w" + std::to_string(victim));
      } else {
        REQUIRE(*got.numbers == want);
      }
    }
  }
  internal::log::set_level(internal::log::Level::warning);
  CHECK(died > 100);
}
