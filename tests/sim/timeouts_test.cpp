// Deadlines, slow creations and lost workers, in virtual time.
#include <catch2/catch.hpp>

#include "actors/worker/worker.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

struct Gate : Actor {
  int64_t passes(int64_t n) { return n; }
  Task<int64_t> waits(int64_t n) {
    co_await open.future();
    co_return n;
  }
  void opens() { open.set(); }
  Promise<void> open;
  static constexpr auto remote = methods<&Gate::passes, &Gate::waits, &Gate::opens>;
};

// Uses a gate from a third worker.
struct User : Actor {
  Task<int64_t> use(RRef<Gate> gate, int64_t milliseconds) {
    co_return co_await gate.with_timeout(std::chrono::milliseconds(milliseconds)).call<&Gate::passes>(7);
  }
  static constexpr auto remote = methods<&User::use>;
};

void nothing_left(SimulatedCluster& cluster, std::vector<size_t> workers) {
  cluster.settle();
  for (size_t w : workers)
    for (const char* what :
         {"owned_objects", "pending_references", "borrowed_references", "pending_calls", "actors"}) {
      INFO("w" << w << " " << what);
      CHECK(cluster.worker(w).metrics()[what] == 0);
    }
}
template <class T>
void ends_by_deadline(const Result<T>& r) {
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().kind() == ErrorKind::deadline);
}

}  // namespace

TEST_CASE("calls over a slow link: a timeout of the call goes before the default, zero is none") {
  SECTION("a default of a minute") {
    SimulatedCluster cluster(1, 2, hosting<Gate>());
    auto gate = cluster.here(0).spawn<Gate>(1);
    cluster.settle();
    cluster.network().set_faults({.delay = 750ms});
    ends_by_deadline(cluster.await(gate.with_timeout(1s).call<&Gate::passes>(1)));
    CHECK(cluster.await(gate.call<&Gate::passes>(2)).value() == 2);
    CHECK(cluster.await(gate.with_timeout(0s).call<&Gate::passes>(3)).value() == 3);
  }
  SECTION("a default of a millisecond") {
    SimulatedCluster cluster(1, 2, hosting<Gate>(), {.timeout = 1ms});
    auto gate = cluster.here(0).spawn<Gate>(1);
    cluster.settle();
    cluster.network().set_faults({.delay = 750ms});
    const Duration start = cluster.now();
    std::vector<Future<int64_t>> calls;
    for (int i = 0; i < 10; ++i) calls.push_back(gate.call<&Gate::passes>(i));
    std::string text;
    for (auto& c : calls) {
      const auto r = cluster.await(c);
      ends_by_deadline(r);
      if (text.empty()) text = r.error().what();
      CHECK(r.error().what() == text);
    }
    CHECK(cluster.now() - start < 750ms);
    ends_by_deadline(cluster.await(gate.with_timeout(1s).call<&Gate::passes>(1)));
    CHECK(cluster.await(gate.with_timeout(2s).call<&Gate::passes>(2)).value() == 2);
    CHECK(cluster.await(gate.with_timeout(0s).call<&Gate::passes>(3)).value() == 3);
  }
}

TEST_CASE(
    "a slow method and an actor that is still being made end calls by their deadlines, and are used after") {
  SimulatedCluster cluster(1, 3, hosting<Gate, User>());
  cluster.network().set_faults({.delay = 1ms});
  {
    auto user = cluster.here(0).spawn<User>(2);
    cluster.settle();
    cluster.network().set_faults("w0", "w1", {.delay = 2s});  // creations are slow, the way by w2 is not
    const Duration start = cluster.now();
    auto gate = cluster.here(0).spawn<Gate>(1);
    ends_by_deadline(cluster.await(user.call<&User::use>(gate, 10)));
    CHECK(cluster.now() - start < 2s);  // nobody has made it yet
    ends_by_deadline(cluster.await(gate.with_timeout(1ms).call<&Gate::passes>(1)));
    CHECK(cluster.now() - start < 2s);
    CHECK(cluster.await(user.call<&User::use>(gate, 10'000)).value() == 7);
    CHECK(cluster.now() - start >= 2s);
    cluster.settle();
    CHECK(cluster.worker(1).metrics()["owned_objects"] == 1);
    CHECK(cluster.worker(1).metrics()["pending_references"] == 0);
    CHECK(cluster.await(gate.call<&Gate::passes>(2)).value() == 2);

    auto slow = gate.with_timeout(5s).call<&Gate::waits>(3), patient = gate.call<&Gate::waits>(4);
    ends_by_deadline(cluster.await(slow));
    CHECK_FALSE(patient.is_ready());
    CHECK(cluster.await(gate.call<&Gate::opens>()).ok());
    CHECK(cluster.await(patient).value() == 4);
  }
  nothing_left(cluster, {0, 1, 2});
}

TEST_CASE("when a worker dies calls in flight and new ones fail and name it, and the others answer") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    INFO("seed " << seed);
    SimulatedCluster cluster(seed, 3, hosting<Gate>());
    cluster.network().set_faults({.delay = 1ms, .jitter = 2ms});
    {
      auto dying = cluster.here(0).spawn<Gate>(1), living = cluster.here(0).spawn<Gate>(2);
      REQUIRE(cluster.await(dying.call<&Gate::passes>(1)).ok());
      auto waits = dying.call<&Gate::waits>(2), beside = living.call<&Gate::waits>(3);
      cluster.network().schedule(Duration(seed * 100'000), [&] { cluster.network().crash("w1"); });
      const auto names_it = [&](const Result<int64_t>& r, Duration since) {
        REQUIRE_FALSE(r.ok());
        CHECK(r.error().kind() == ErrorKind::disconnected);
        CHECK(r.error().worker() == "w1");
        CHECK(cluster.now() - since < 1s);
      };
      Duration start = cluster.now();
      names_it(cluster.await(waits), start);
      for (int i = 0; i < 2; ++i) {
        start = cluster.now();
        names_it(cluster.await(dying.call<&Gate::passes>(4)), start);
      }
      CHECK(cluster.await(living.call<&Gate::passes>(5)).value() == 5);
      CHECK(cluster.await(living.call<&Gate::opens>()).ok());
      CHECK(cluster.await(beside).value() == 3);
    }
    nothing_left(cluster, {0, 2});
  }
}
