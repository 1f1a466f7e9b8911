// Scopes that join the calls made in them.
#include <catch2/catch.hpp>

#include "actors/worker/worker.h"
#include "tests/support/error_of.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

struct Part : Actor {
  int64_t add(int64_t n) { return sum += n; }
  void fails() { throw std::runtime_error("no more paper"); }
  Task<int64_t> waits() {
    ++waiting;
    co_await opened.future();
    ++ended;
    co_return sum;
  }
  void open() { opened.set(); }
  std::vector<int64_t> counts() { return {sum, waiting, ended}; }
  /// Adds 1 to each part, and to those of a nested scope; then, on wish, fails.
  Task<int64_t> adds(std::vector<RRef<Part>> parts, bool fail) {
    CallScope scope;
    for (auto& p : parts) (void)p.call<&Part::add>(1);
    {
      CallScope inner;
      for (auto& p : parts) (void)p.call<&Part::add>(Future<int64_t>::ready(10));
      co_await inner.joined();
    }
    for (auto& p : parts) sum += (co_await p.call<&Part::counts>())[0];
    if (fail) (void)parts[0].call<&Part::fails>();
    (void)parts[1].with_timeout(0s).call<&Part::waits>();
    co_await scope.joined();
    co_return sum;
  }
  /// Leaves its scope without looking back.
  Task<void> leaves(RRef<Part> part) {
    CallScope scope;
    (void)part.with_timeout(0s).call<&Part::waits>();
    co_await part.call<&Part::counts>();
    throw std::runtime_error("enough");
  }
  Promise<void> opened;
  int64_t sum = 0, waiting = 0, ended = 0;
  static constexpr auto remote =
      methods<&Part::add, &Part::fails, &Part::waits, &Part::open, &Part::counts, &Part::adds, &Part::leaves>;
};

struct Fixture {
  SimulatedCluster cluster{1, 3, hosting<Part>()};
  std::vector<RRef<Part>> parts;
  Fixture() {
    cluster.network().set_faults({.delay = 1ms});
    for (size_t w = 0; w < 3; ++w) parts.push_back(cluster.here(0).spawn<Part>(w));
    cluster.settle();
  }
  std::vector<int64_t> counts(size_t part) {
    return cluster.await(parts[part].call<&Part::counts>()).value();
  }
  void nothing_waits() {
    cluster.settle();
    for (size_t w = 0; w < 3; ++w)
      for (const char* what : {"pending_calls", "unanswered_calls"})
        CHECK(cluster.worker(w).metrics()[what] == 0);
  }
};

}  // namespace

TEST_CASE("a scope joins all calls that were made in it, whether or not their futures are kept", "[calls]") {
  Fixture f;
  CallScope scope;
  for (int i = 1; i <= 4; ++i)
    for (auto& p : f.parts) (void)p.call<&Part::add>(i);
  (void)f.parts[0].call<&Part::add>(f.parts[1].call<&Part::add>(0));  // of a call that leaves later
  const auto joined = scope.joined();
  CHECK_FALSE(joined.is_ready());
  (void)f.parts[0].call<&Part::fails>();  // after the scope
  CHECK(f.cluster.await(joined).ok());
  CHECK(f.counts(0)[0] == 20);
  CHECK(f.counts(2)[0] == 10);
  f.nothing_waits();
}

TEST_CASE("the first failure ends a scope: the other calls are cancelled, late ones too", "[calls]") {
  Fixture f;
  CallScope scope;
  const auto waits = f.parts[2].with_timeout(0s).call<&Part::waits>();
  SECTION("an error") { (void)f.parts[1].call<&Part::fails>(); }
  SECTION("a deadline") { (void)f.parts[1].with_timeout(5ms).call<&Part::waits>(); }
  SECTION("a future that comes from elsewhere") {
    scope.add(Future<int64_t>::failed(Error(ErrorKind::failed, "no more paper")));
  }
  f.cluster.settle();
  const auto late = f.parts[0].call<&Part::waits>();
  CHECK(late.wait().error().kind() == ErrorKind::cancelled);
  const auto r = f.cluster.await(scope.joined());
  REQUIRE_FALSE(r.ok());
  CHECK((r.error().kind() == ErrorKind::deadline ||
         r.error().message().find("no more paper") != std::string::npos));
  CHECK(waits.wait().error().kind() == ErrorKind::cancelled);
  f.cluster.await(f.parts[2].call<&Part::open>()).value();
  CHECK(f.counts(2)[2] == 0);
  f.nothing_waits();
}

TEST_CASE("scopes in coroutines, in each other, go on after every wait", "[calls]") {
  Fixture f;
  const std::vector<RRef<Part>> two = {f.parts[0], f.parts[2]};
  SECTION("all goes well") {
    const auto sum = f.parts[1].with_timeout(0s).call<&Part::adds>(two, false);
    f.cluster.settle();
    CHECK_FALSE(sum.is_ready());
    f.cluster.await(f.parts[2].call<&Part::open>()).value();
    CHECK(f.cluster.await(sum).value() == 22);
  }
  SECTION("a call fails") {
    const auto r = f.cluster.await(f.parts[1].with_timeout(0s).call<&Part::adds>(two, true));
    REQUIRE_FALSE(r.ok());
    CHECK_THAT(r.error().what(), Catch::Contains("no more paper"));
    CHECK(f.counts(2)[1] <= 1);
    CHECK(f.counts(2)[2] == 0);
  }
  f.nothing_waits();
}

TEST_CASE("a scope that is left early cancels its calls", "[calls]") {
  Fixture f;
  const auto r = f.cluster.await(f.parts[1].call<&Part::leaves>(f.parts[2]));
  CHECK_THAT(r.error().what(), Catch::Contains("enough"));
  {
    CallScope scope;
    (void)f.parts[0].with_timeout(0s).call<&Part::waits>();
    f.cluster.settle();
  }
  f.nothing_waits();
  CHECK(f.counts(2)[1] == 1);
}

TEST_CASE("outside actors a scope is joined by waiting", "[calls]") {
  auto cluster = Cluster::in_process(3, hosting<Part>());
  auto a = cluster->spawn<Part>("w1"), b = cluster->spawn<Part>("w2");
  {
    CallScope scope;
    for (int i = 0; i < 100; ++i) {
      (void)a.call<&Part::add>(1);
      (void)b.call<&Part::add>(2);
    }
    scope.join();
  }
  CHECK(a.call<&Part::counts>().get()[0] == 100);
  CHECK(b.call<&Part::counts>().get()[0] == 200);
  CallScope scope;
  (void)a.call<&Part::fails>();
  CHECK_THAT(testing::text_of([&] { scope.join(); }), Catch::Contains("no more paper"));
}
