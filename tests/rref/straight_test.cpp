// b(a(x)): the result goes from a's worker to b's, whatever happens to either of them.
#include <catch2/catch.hpp>

#include <map>

#include "actors/worker/worker.h"
#include "core/base/log.h"
#include "tests/support/error_of.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

struct Quiet {
  Quiet() { internal::log::set_level(internal::log::Level::off); }
  ~Quiet() { internal::log::set_level(internal::log::Level::warning); }
};

// What a stage waits for, one after the other: the test lets each go on.
std::map<int64_t, Promise<void>> gates;

struct Stage : Actor {
  explicit Stage(int64_t times) : times(times) {}
  int64_t forward(int64_t x) {
    ++ran;
    return times * x;
  }
  int64_t sum(int64_t x, int64_t y) { return times * (x + y); }
  std::vector<int64_t> wide(int64_t x) { return std::vector<int64_t>(1000, times * x); }
  int64_t first(std::vector<int64_t> x) { return x.at(0); }
  int64_t real(double x) { return static_cast<int64_t>(x) + times; }
  int64_t throws(int64_t) { throw std::runtime_error("no luck"); }
  int64_t next(int64_t x) { return x + 1; }
  /// Ends when the test says so.
  Task<int64_t> waits(int64_t gate) {
    co_await gates[gate].future();
    co_return times* gate;
  }
  Task<int64_t> both(RRef<Stage> a, RRef<Stage> b, int64_t x) { co_return co_await b(a(x)) + 1; }
  Task<int64_t> uses_late(RRef<Stage> a, RRef<Stage> b, int64_t gate) {
    co_return co_await b(a.call<&Stage::waits>(gate));
  }
  Task<int64_t> uses(Remote<int64_t> h, RRef<Stage> b) { co_return co_await b(h) + 1; }
  int64_t runs() { return ran; }
  int64_t times, ran = 0;
  static constexpr auto remote =
      methods<&Stage::forward, &Stage::sum, &Stage::wide, &Stage::first, &Stage::real, &Stage::next,
              &Stage::throws, &Stage::waits, &Stage::both, &Stage::uses_late, &Stage::uses, &Stage::runs>;
};

// Four stages on w1 to w4, and a driver on w0, with delays.
struct FiveWorkers {
  explicit FiveWorkers(uint64_t seed = 1, FlowLimits limits = {})
      : cluster(seed, 5, hosting<Stage>(), {.limits = limits}) {
    gates.clear();
    cluster.network().set_faults({.delay = 1ms, .jitter = seed % 2 ? 2ms : 0ms});
    for (size_t w = 1; w < 5; ++w) s.push_back(cluster.here(0).spawn<Stage>(w, int64_t(w) + 1));
    for (auto& a : s) (void)cluster.await(a.ready());
  }
  ~FiveWorkers() { gates.clear(); }
  template <class T>
  T get(const Future<T>& f) {
    const Result<T> r = cluster.await(f);
    if (!r.ok()) throw r.error();
    return r.value();
  }
  /// Lets happen what happens in a while.
  void pause() {
    bool over = false;
    cluster.network().schedule(1s, [&] { over = true; });
    while (!over) cluster.step();
  }
  int64_t straight() {
    int64_t n = 0;
    for (size_t w = 0; w < 5; ++w) n += cluster.worker(w).metrics()["arguments_sent"];
    return n;
  }
  int64_t passed_on() { return cluster.worker(0).metrics()["arguments_passed_on_sent"]; }
  void nothing_left(size_t but = 99) {
    cluster.settle();
    for (size_t w = 0; w < 5; ++w) {
      if (w == but) continue;
      auto m = cluster.worker(w).metrics();
      for (const char* what : {"late_calls", "early_arguments", "pending_calls", "unanswered_calls",
                               "in_flight_calls", "in_flight_bytes"}) {
        INFO("w" << w << ", " << what);
        REQUIRE(m[what] == 0);
      }
    }
  }
  SimulatedCluster cluster;
  std::vector<RRef<Stage>> s;
};

}  // namespace

TEST_CASE("results of calls that are arguments go from worker to worker") {
  FiveWorkers five;
  auto& s = five.s;
  CHECK(five.get(s[3](s[2](s[1](s[0](7))))) == 7 * 2 * 3 * 4 * 5);
  CHECK(five.straight() == 2);  // the first had ended before it was told, each other hears it in time
  CHECK(five.passed_on() == 1);
  five.nothing_left();
  CHECK(five.get(s[1].call<&Stage::first>(s[0].call<&Stage::wide>(7))) == 14);
  auto f = s[0](7);
  CHECK(five.get(s[1](std::move(f))) == 42);
  CHECK_FALSE(f.valid());
  CHECK(five.passed_on() == 3);
  five.nothing_left();
}

TEST_CASE("a result that somebody else can ask for comes to the caller") {
  FiveWorkers five;
  auto& s = five.s;
  const auto f = s[0](7), g = s[1](f);
  CHECK(five.get(s[2](g)) == 7 * 2 * 3 * 4);
  CHECK(five.get(f) == 14);
  auto h = s[0](7);
  const auto also = h;
  CHECK(five.get(s[1](std::move(h))) == 42);
  CHECK(five.get(also) == 14);
  int64_t heard = 0;
  auto k = s[0](7);
  k.on_ready([&](const Result<int64_t>& r) { heard = r.value(); });
  CHECK(five.get(s[1](std::move(k))) == 42);
  CHECK(heard == 14);
  CHECK(five.get(s[1].call<&Stage::real>(s[0](7))) == 17);                     // it is converted here
  CHECK(five.get(s[1](s[0](7).then([](int64_t n) { return n + 1; }))) == 45);  // and changed here
  CHECK(five.straight() + five.passed_on() == 0);
  five.nothing_left();
}

TEST_CASE("several late arguments of one call, in any order") {
  for (const bool swap : {false, true}) {
    FiveWorkers five;
    auto& s = five.s;
    const auto g = s[3].call<&Stage::sum>(s[0].call<&Stage::waits>(1), s[1].call<&Stage::waits>(2));
    five.pause();
    CHECK_FALSE(g.is_ready());
    CHECK(five.cluster.worker(4).metrics()["late_calls"] == 1);
    CHECK(five.get(s[3](1)) == 5);  // others do not wait for it
    gates[swap ? 2 : 1].set();
    five.pause();
    CHECK_FALSE(g.is_ready());
    gates[swap ? 1 : 2].set();
    CHECK(five.get(g) == 5 * (1 * 2 + 2 * 3));
    CHECK(five.straight() == 2);
    five.nothing_left();
  }
}

TEST_CASE("results go straight within a worker, too") {
  FiveWorkers five;
  auto& s = five.s;
  const auto g = s[0](s[0].call<&Stage::waits>(7));
  five.pause();
  CHECK(five.cluster.worker(1).metrics()["late_calls"] == 1);
  gates[7].set();
  CHECK(five.get(g) == 28);
  CHECK(five.straight() == 1);
  CHECK(five.passed_on() == 0);
  five.nothing_left();
}

TEST_CASE("a call with arguments of both kinds leaves at once, and is sent those that come to the caller") {
  for (const bool swap : {false, true}) {
    FiveWorkers five;
    auto& s = five.s;
    const auto kept = s[1].call<&Stage::waits>(2);
    const auto g =
        s[3].call<&Stage::sum>(s[0].call<&Stage::waits>(1), kept.then([](int64_t n) { return n + 1; }));
    five.pause();
    CHECK(five.cluster.worker(4).metrics()["late_calls"] == 1);
    gates[swap ? 2 : 1].set();
    five.pause();
    CHECK_FALSE(g.is_ready());
    gates[swap ? 1 : 2].set();
    CHECK(five.get(g) == 5 * (1 * 2 + 2 * 3 + 1));
    CHECK(five.get(kept) == 6);
    CHECK(five.straight() == 1);
    CHECK(five.passed_on() == 1);
    five.nothing_left();
    // The error of either is that of the call, and ends the other unless somebody else wants it.
    const auto bad = s[1].call<&Stage::throws>(1);
    const auto f = s[3].call<&Stage::sum>(s[0].call<&Stage::waits>(3), bad);
    const Error of_call = testing::error_of([&] { (void)five.get(f); });
    CHECK(of_call.what() == std::string(bad.peek()->error().what()));
    five.nothing_left();
    const auto wanted = s[1].call<&Stage::waits>(4);
    const auto e = s[3].call<&Stage::sum>(s[0].call<&Stage::throws>(1), wanted);
    CHECK_THAT(testing::error_of([&] { (void)five.get(e); }).what(), Catch::Contains("no luck"));
    gates[4].set();
    CHECK(five.get(wanted) == 12);
    five.nothing_left();
    CHECK(five.get(s[3].call<&Stage::runs>()) == 0);
  }
}

TEST_CASE("results of calls in a scope go straight, and the scope joins all of them") {
  FiveWorkers five;
  auto& s = five.s;
  {
    CallScope scope;
    (void)s[3](s[2](s[1].call<&Stage::waits>(1)));
    const auto joined = scope.joined();
    five.pause();
    CHECK_FALSE(joined.is_ready());
    gates[1].set();
    const auto r = five.cluster.await(joined);
    CHECK(r.ok());
    CHECK(five.straight() == 2);
    CHECK(five.get(s[3].call<&Stage::runs>()) == 1);
  }
  five.nothing_left();
  {  // one of them fails: the others end
    CallScope scope;
    (void)s[3](s[2].call<&Stage::throws>(1));
    (void)s[3](s[1].call<&Stage::waits>(2));
    const auto r = five.cluster.await(scope.joined());
    REQUIRE_FALSE(r.ok());
    CHECK_THAT(r.error().what(), Catch::Contains("no luck"));
    five.nothing_left();
  }
  {  // it is left early
    CallScope scope;
    (void)s[3](s[1].call<&Stage::waits>(3));
    five.pause();
  }
  five.nothing_left();
  {  // added by hand, then moved from
    CallScope scope;
    auto f = s[1].call<&Stage::waits>(4);
    scope.add(f);
    (void)s[3](std::move(f));
    const auto joined = scope.joined();
    five.pause();
    gates[4].set();
    CHECK(five.cluster.await(joined).ok());
  }
  CHECK(five.straight() == 3);
  CHECK(five.get(s[3].call<&Stage::runs>()) == 2);
  five.nothing_left();
}

TEST_CASE("the report of a late call names what it waits for") {
  FiveWorkers five;
  auto& s = five.s;
  const auto g = s[3].with_timeout(10s).call<&Stage::uses_late>(s[0], s[1], 1);
  const Error e = testing::error_of([&] { (void)five.get(g); });
  CHECK(e.kind() == ErrorKind::deadline);
  CHECK_THAT(e.what(), Catch::Contains("It has not begun: it waits for argument 1 from w1."));
  five.nothing_left();
}

TEST_CASE("a chain of 10,000 calls needs no more stack than one") {
  FiveWorkers five;
  auto& s = five.s;
  auto f = s[0].call<&Stage::next>(0);
  for (size_t i = 1; i < 10'000; ++i) f = s[i % 4].call<&Stage::next>(std::move(f));
  CHECK(five.get(f) == 10'000);
  // And one that is given up as a whole.
  auto g = s[0].call<&Stage::waits>(1);
  for (size_t i = 1; i < 10'000; ++i) g = s[i % 4].call<&Stage::next>(std::move(g));
  g = {};
  five.nothing_left();
}

TEST_CASE("an actor's calls go straight, too") {
  FiveWorkers five;
  auto& s = five.s;
  CHECK(five.get(s[3].call<&Stage::both>(s[0], s[1], 7)) == 43);
  CHECK(five.get(s[2](s[3].call<&Stage::both>(s[0], s[1], 7))) == 43 * 4);
  CHECK(five.straight() >= 1);
  five.nothing_left();
}

TEST_CASE("an error of an argument is that of the call, as if it had waited for it") {
  for (const bool early : {false, true}) {
    FiveWorkers five;
    auto& s = five.s;
    const auto make = [&] {
      return early ? s[0].call<&Stage::throws>(1) : s[1].call<&Stage::throws>(s[0](1));
    };
    const auto kept = make();
    const Error want = testing::error_of([&] { (void)five.get(s[3](s[2](kept))); });
    const Error got = testing::error_of([&] { (void)five.get(s[3](s[2](make()))); });
    CHECK(got.what() == std::string(want.what()));
    CHECK(got.trail() == want.trail());
    CHECK(five.get(s[3].call<&Stage::runs>()) == 0);
    // The other argument is given up.
    const auto g = s[3].call<&Stage::sum>(s[2].call<&Stage::waits>(1), make());
    CHECK(testing::error_of([&] { (void)five.get(g); }).what() == std::string(kept.peek()->error().what()));
    five.nothing_left();
  }
}

TEST_CASE("who wants no result of a late call ends all that it is made of") {
  for (int way = 0; way < 3; ++way)
    for (int after = 0; after < 12; ++after) {
      INFO("way " << way << ", after " << after << " events");
      FiveWorkers five;
      auto& s = five.s;
      auto g = s[3](s[2].call<&Stage::sum>(s[1].call<&Stage::waits>(1), s[0](1)));
      for (int i = 0; i < after; ++i) five.cluster.step();
      if (way == 0) g = {};
      if (way == 1) g.cancel();
      if (way == 2) {
        auto h = s[3](std::move(g));
        h.cancel();
      }
      five.nothing_left();
      CHECK(five.get(s[3].call<&Stage::runs>()) == 0);
    }
}

TEST_CASE("a call whose argument is late has its time from when that came") {
  FiveWorkers five;
  auto& s = five.s;
  const auto g = s[3](s[2].call<&Stage::sum>(s[1].call<&Stage::waits>(1), s[0](1)));
  five.cluster.network().schedule(50s, [] { gates[1].set(); });
  const auto late = s[3].call<&Stage::sum>(s[2].call<&Stage::waits>(2), s[1].call<&Stage::waits>(1));
  CHECK(five.get(g) == 5 * 4 * (3 + 2));
  five.cluster.network().schedule(100s, [] { gates[2].set(); });
  const Error e = testing::error_of([&] { (void)five.get(late); });
  CHECK(e.kind() == ErrorKind::deadline);
  CHECK_THAT(e.what(), Catch::Contains("Stage::waits on w3"));  // it was the argument that took long
  five.nothing_left();
  // Its own time, once it has its argument.
  const auto slow = s[3].with_timeout(10s).call<&Stage::waits>(s[2].call<&Stage::waits>(3));
  five.cluster.network().schedule(30s, [] { gates[3].set(); });
  const Error own = testing::error_of([&] { (void)five.get(slow); });
  CHECK(own.kind() == ErrorKind::deadline);
  CHECK_THAT(own.what(), Catch::Contains("Stage::waits on w4"));
  five.nothing_left();
}

TEST_CASE("late calls that find no room leave in turn") {
  FiveWorkers five(1, {.bytes = 1 << 20, .messages = 1});
  auto& s = five.s;
  std::vector<Future<int64_t>> all;
  for (int64_t i = 1; i <= 5; ++i) all.push_back(s[3](s[2](s[1].call<&Stage::waits>(i))));
  for (int64_t i = 5; i >= 1; --i) {
    five.pause();
    gates[i].set();
  }
  for (int64_t i = 1; i <= 5; ++i) CHECK(five.get(all[size_t(i) - 1]) == i * 3 * 4 * 5);
  five.nothing_left();
}

TEST_CASE("a worker that dies while results go straight is named, and leaves nothing on the others") {
  Quiet quiet;
  int died = 0, went_on = 0;
  for (uint64_t seed = 0; seed < 6; ++seed)
    for (size_t victim = 1; victim < 5; ++victim)
      for (int at = 0;; ++at) {
        INFO("seed " << seed << ", w" << victim << " before event " << at);
        FiveWorkers five(seed);
        auto& s = five.s;
        const auto g = s[3](s[2].call<&Stage::sum>(s[1](s[0](1)), s[0](2)));
        for (int i = 0; i < at && !g.is_ready(); ++i) five.cluster.step();
        if (g.is_ready()) break;
        five.cluster.network().crash("w" + std::to_string(victim));
        const auto r = five.cluster.await(g);
        if (r.ok()) {
          ++went_on;
          REQUIRE(r.value() == 5 * 4 * (2 * 3 + 2 * 2));
        } else {
          ++died;
          REQUIRE(r.error().kind() == ErrorKind::disconnected);
          REQUIRE(r.error().worker() == "w" + std::to_string(victim));
        }
        five.nothing_left(victim);
      }
  CHECK(died > 200);
  CHECK(went_on > 20);
}

TEST_CASE(
    "a connection that breaks while a result is on its way over it ends the call, which names the other") {
  Quiet quiet;
  int broke = 0, went_on = 0;
  for (uint64_t seed = 0; seed < 4; ++seed)
    for (const auto& [from, to] : {std::pair("w1", "w2"), std::pair("w2", "w1")})
      for (int at = 0;; ++at) {
        INFO("seed " << seed << ", " << from << " to " << to << " before event " << at);
        FiveWorkers five(seed);
        auto& s = five.s;
        const auto g = s[1](s[0](s[2](1)));
        for (int i = 0; i < at && !g.is_ready(); ++i) five.cluster.step();
        if (g.is_ready()) break;
        five.cluster.network().reset(from, to);
        const auto r = five.cluster.await(g);
        if (r.ok()) {
          ++went_on;
          REQUIRE(r.value() == 4 * 2 * 3);
        } else {
          ++broke;
          REQUIRE(r.error().kind() == ErrorKind::disconnected);
          REQUIRE((r.error().worker() == "w1" || r.error().worker() == "w2"));
        }
        five.nothing_left();
      }
  CHECK(broke > 5);
  CHECK(went_on > 20);
}

TEST_CASE("messages that are lost and sent again change nothing") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    FiveWorkers five(seed);
    five.cluster.network().set_faults({.delay = 1ms, .jitter = 2ms, .drop = 0.2, .resend = 20ms});
    auto& s = five.s;
    const auto g = s[3](s[2].call<&Stage::sum>(s[1](s[0](1)), s[0](2)));
    CHECK(five.get(g) == 5 * 4 * (2 * 3 + 2 * 2));
    five.nothing_left();
  }
}

TEST_CASE("a caller that dies while results go straight leaves nothing on the others") {
  Quiet quiet;
  for (uint64_t seed = 0; seed < 6; ++seed)
    for (int at = 0; at < 40; ++at) {
      INFO("seed " << seed << ", before event " << at);
      FiveWorkers five(seed);
      auto& s = five.s;
      const auto g = s[3](s[2].call<&Stage::sum>(s[1].call<&Stage::waits>(1), s[0](2)));
      for (int i = 0; i < at; ++i) five.cluster.step();
      gates[1].set();
      for (int i = 0; i < at % 5; ++i) five.cluster.step();
      five.cluster.network().crash("w0");
      five.nothing_left(0);
    }
}

TEST_CASE("what a reference refers to goes straight to any number of calls that take it") {
  FiveWorkers five;
  auto& s = five.s;
  const auto h = s[0].remote<&Stage::waits>(2);
  const auto p = s[1](h), q = s[2](h), r = s[3].call<&Stage::sum>(h, s[1](1)), own = s[0](h),
             other = s[3].call<&Stage::uses>(h, s[1]);
  five.pause();
  CHECK_FALSE(p.is_ready());
  gates[2].set();
  CHECK(five.get(p) == 4 * 3);
  CHECK(five.get(q) == 4 * 4);
  CHECK(five.get(r) == (4 + 3) * 5);
  CHECK(five.get(own) == 4 * 2);  // within a worker as before
  CHECK(five.get(other) == 4 * 3 + 1);
  CHECK(five.straight() >= 3);
  CHECK(five.get(s[2](h)) == 4 * 4);  // when it has been there for long
  const auto bad = s[0].remote<&Stage::throws>(1);
  const auto fetched = bad.to_here();
  const Error want = testing::error_of([&] { (void)five.get(s[1](fetched)); });
  const Error got = testing::error_of([&] { (void)five.get(s[1](bad)); });
  CHECK(got.what() == std::string(want.what()));
  CHECK(testing::error_of([&] { (void)five.get(s[1](Remote<int64_t>())); }).kind() == ErrorKind::invalid);
  five.nothing_left();
}

TEST_CASE("an owner that dies while its value goes straight to a call is named, and leaves nothing") {
  Quiet quiet;
  int died = 0, went_on = 0;
  for (int at = 0;; ++at) {
    INFO("before event " << at);
    FiveWorkers five(uint64_t(at) % 4);
    auto& s = five.s;
    const auto h = s[0].remote<&Stage::forward>(1);
    const auto g = s[2](s[1](h));
    for (int i = 0; i < at && !g.is_ready(); ++i) five.cluster.step();
    if (g.is_ready() && at > 40) break;
    five.cluster.network().crash("w1");
    const auto r = five.cluster.await(g);
    if (r.ok()) {
      ++went_on;
      REQUIRE(r.value() == 2 * 3 * 4);
    } else {
      ++died;
      REQUIRE(r.error().kind() == ErrorKind::disconnected);
      REQUIRE(r.error().worker() == "w1");
    }
    five.nothing_left(1);
  }
  CHECK(died > 5);
  CHECK(went_on > 5);
}
