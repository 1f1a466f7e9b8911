// Calls that wait for arguments keep their actor.
#include <catch2/catch.hpp>

#include "actors/worker/worker.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

// What a Gate waits for: the test opens it.
std::optional<Promise<void>> opens;

struct Gate : Actor {
  Task<int64_t> waits(int64_t n) {
    co_await opens->future();
    co_return n;
  }
  int64_t doubled(int64_t n) { return 2 * n; }
  static constexpr auto remote = methods<&Gate::waits, &Gate::doubled>;
};

}  // namespace

TEST_CASE("an actor whose last reference goes lives until calls that wait for arguments have run") {
  for (const bool fails : {false, true}) {
    INFO(fails);
    opens.emplace();
    SimulatedCluster cluster(1, 3, hosting<Gate>());
    cluster.network().set_faults({.delay = std::chrono::milliseconds(1)});
    const auto gate = cluster.here(0).spawn<Gate>(1);
    auto user = cluster.here(0).spawn<Gate>(2);
    const auto result = user.call<&Gate::doubled>(gate.call<&Gate::waits>(21));
    user = {};
    bool over = false;
    cluster.network().schedule(std::chrono::seconds(1), [&] { over = true; });
    while (!over) cluster.step();
    const auto alive = [&] { return cluster.worker(2).metrics()["actors"]; };
    CHECK(alive() == 1);
    if (fails) {
      opens->fail(Error(ErrorKind::failed, "no luck"));
      CHECK_THAT(cluster.await(result).error().what(), Catch::Contains("no luck"));
    } else {
      opens->set();
      CHECK(cluster.await(result).value() == 42);
    }
    cluster.settle();
    CHECK(alive() == 0);
    opens.reset();
  }
}
