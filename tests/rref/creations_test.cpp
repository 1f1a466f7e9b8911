// Calls that come before the object that they are for, and while it is being made.
#include <catch2/catch.hpp>

#include <functional>

#include "actors/worker/worker.h"
#include "rref/tables/creations.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

// Something happens while it is being constructed.
struct Log : Actor {
  Log() { meanwhile(); }
  void add(int64_t n) { added.push_back(n); }
  std::vector<int64_t> all() { return added; }
  std::vector<int64_t> added;
  static inline std::function<void()> meanwhile = [] {};
  static constexpr auto remote = methods<&Log::add, &Log::all>;
};

struct Holder : Actor {
  void put(RRef<Log> l) { log = std::move(l); }
  Task<std::vector<int64_t>> use() { co_return co_await log.call<&Log::all>(); }
  Task<void> pass(RRef<Log> l, RRef<Holder> to) { co_await to.call<&Holder::put>(l); }
  RRef<Log> log;
  static constexpr auto remote = methods<&Holder::put, &Holder::use, &Holder::pass>;
};

void nothing_left(SimulatedCluster& cluster, std::vector<size_t> on) {
  cluster.settle();
  for (size_t w : on)
    for (const char* what :
         {"owned_objects", "owned_references", "borrowed_references", "pending_references"}) {
      INFO(what << " on w" << w);
      CHECK(cluster.worker(w).metrics()[what] == 0);
    }
}

}  // namespace

TEST_CASE("what comes while an object is being made waits, and goes behind what came before") {
  const ObjectId id{0, 1, 5}, next{0, 1, 6};
  internal::rref::Creations<int> creations;
  REQUIRE(creations.pending(id));
  creations.wait(id, 1);
  creations.wait(next, 10);
  creations.begin(id);
  CHECK(creations.take(id) == std::vector{1});
  REQUIRE(creations.pending(id));
  creations.wait(id, 2);
  CHECK(creations.lose(1) == std::vector{10});  // its creator has gone: this object is made nonetheless
  CHECK(creations.take(id) == std::vector{2});
  REQUIRE(creations.pending(id));
  CHECK(creations.take(id).empty());
  creations.made(id);
  CHECK_FALSE(creations.pending(id));
  CHECK(creations.waiting() == 0);
}

TEST_CASE("calls of one worker reach an actor in their order, whenever it is made") {
  SimulatedCluster cluster(1, 3, hosting<Log>());
  cluster.network().set_faults({.delay = 1ms});
  cluster.network().set_faults("w0", "w2", {.delay = 40ms});  // the creation is slow
  std::vector<Future<Value>> calls;
  ObjectId id;
  const auto call = [&](int64_t n) {
    calls.push_back(cluster.worker(1).call(id, "Log::add", internal::net::method_id("add"), {Value(n)}));
  };
  // As another thread does that delivers the messages of another worker.
  Log::meanwhile = [&] {
    call(2);
    bool arrived = false;
    cluster.network().schedule(2ms, [&] { arrived = true; });
    while (!arrived) cluster.step();
    call(3);
  };
  {
    const auto log = cluster.here(0).spawn<Log>(2);
    id = log.id();
    call(1);
    cluster.settle();
    CHECK(cluster.await(log.call<&Log::all>()).value() == std::vector<int64_t>{1, 2, 3});
    for (const auto& c : calls) CHECK_NOTHROW(c.get());
  }
  Log::meanwhile = [] {};
  nothing_left(cluster, {0, 1, 2});
}

TEST_CASE("the creator of an actor dies while it is being constructed: calls that wait say so") {
  SimulatedCluster cluster(1, 3, hosting<Log, Holder>());
  cluster.network().set_faults({.delay = 1ms});
  {
    auto holder = cluster.here(1).spawn<Holder>(1);
    cluster.settle();
    cluster.network().set_faults("w0", "w2", {.delay = 40ms});
    Log::meanwhile = [&] {
      cluster.network().crash("w0");
      bool noticed = false;
      cluster.network().schedule(10s, [&] { noticed = true; });
      while (!noticed) cluster.step();
    };
    const auto log = cluster.here(0).spawn<Log>(2);
    auto early = cluster.worker(1).call(log.id(), "Log::all", internal::net::method_id("all"), {});
    const auto result = cluster.await(early);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().kind() == ErrorKind::disconnected);
  }
  Log::meanwhile = [] {};
  nothing_left(cluster, {1, 2});
}

TEST_CASE("the owner of an actor may hold a reference to it before it is made, and keeps it alive") {
  SimulatedCluster cluster(1, 3, hosting<Log, Holder>());
  cluster.network().set_faults({.delay = 1ms});
  {
    auto there = cluster.here(0).spawn<Holder>(1), between = cluster.here(0).spawn<Holder>(2);
    cluster.settle();
    cluster.network().set_faults("w0", "w1", {.delay = 40ms});  // the creation is slow, the way by w2 is not
    const Duration start = cluster.now();
    cluster.await(between.call<&Holder::pass>(cluster.here(0).spawn<Log>(1), there)).value();
    CHECK(cluster.now() - start < 40ms);
    cluster.settle();
    CHECK(cluster.await(there.call<&Holder::use>()).value().empty());
  }
  nothing_left(cluster, {0, 1, 2});
}
