// Pools of actors in one process: who gets which call, and what is refused.
#include "troupe/pool.h"

#include <catch2/catch.hpp>

#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

struct Counter : Actor {
  explicit Counter(int64_t base) : base_(base) {}
  void load(int64_t base) { base_ = base; }
  Task<int64_t> add(int64_t x, int64_t y) {
    ++calls_;
    co_return base_ + x + y;
  }
  Task<void> wait_for(RRef<Counter> other) { co_await other.call<&Counter::opened>(); }
  Task<void> opened() { co_await gate_.future(); }
  void open() { gate_.set(); }
  int64_t calls() { return calls_; }
  Tensor twice(Tensor x) { return x * 2.0; }
  static constexpr auto remote = methods<&Counter::load, &Counter::add, &Counter::wait_for, &Counter::opened,
                                         &Counter::open, &Counter::calls, &Counter::twice>;

 private:
  int64_t base_, calls_ = 0;
  Promise<void> gate_;
};

}  // namespace

TEST_CASE("a pool calls whoever is free, each, and one of its members") {
  auto cluster = Cluster::in_process(3, hosting<Counter>());
  Pool<Counter> pool(*cluster, {.size = 4}, int64_t{1});
  pool.on_start([](const RRef<Counter>& c) { c.call<&Counter::load>(int64_t{100}).get(); });
  CHECK(pool.call<&Counter::add>(1, 2).get() == 103);
  CHECK(pool.each<&Counter::add>(0, 0).get() == std::vector<int64_t>{100, 100, 100, 100});
  pool[2].call<&Counter::load>(7).get();
  CHECK(pool[2].call<&Counter::add>(1, 1).get() == 9);
  CHECK(pool[2].incarnation() == 0);
  CHECK(pool[2].ref().owner_name() == "w1");
  std::map<size_t, int64_t> came;
  pool[2].call<&Counter::load>(100).get();
  const std::vector<std::tuple<int64_t, int64_t>> tasks{{1, 1}, {2, 2}, {3, 3}};
  for (const auto& [index, value] : pool.as_they_come<&Counter::add>(tasks)) came[index] = value;
  CHECK(came == std::map<size_t, int64_t>{{0, 102}, {1, 104}, {2, 106}});
}

TEST_CASE("a call of a pool that nobody wants any more does not run, and nothing is recorded for gradients") {
  auto cluster = Cluster::in_process(2, hosting<Counter>());
  Pool<Counter> pool(*cluster, {.size = 1}, int64_t{0});
  const auto other = cluster->spawn<Counter>("w0", int64_t{0});
  const Future<void> holds = pool.call<&Counter::wait_for>(other);
  { const auto dropped = pool.call<&Counter::add>(1, 1); }
  const auto wanted = pool.call<&Counter::add>(2, 2);
  other.call<&Counter::open>().get();
  holds.get();
  CHECK(wanted.get() == 4);
  CHECK(pool.call<&Counter::calls>().get() == 1);
  CHECK_FALSE(pool.call<&Counter::twice>(ones({2}).requires_grad_()).get().requires_grad());
}

TEST_CASE("a pool refuses what it cannot have, and calls once it has ended") {
  auto cluster = Cluster::in_process(2, hosting<Counter>());
  CHECK_THAT(error_of([&] { Pool<Counter>(*cluster, {.size = 1, .workers = {"w7"}}, int64_t{0}); }).message(),
             Contains("w7"));
  CHECK_THAT(error_of([&] { Pool<Counter>(*cluster, {.at_once = 0}, int64_t{0}); }).message(),
             Contains("at_once 0"));
  Pool<Counter> pool(*cluster, {.size = 2}, int64_t{0});
  CHECK_THAT(error_of([&] { (void)pool[2]; }).message(), Contains("member 2 of 2"));
  const auto other = cluster->spawn<Counter>("w0", int64_t{0});
  Future<void> holds;  // outlives the pool: dropped, it would free the member
  Future<int64_t> late;
  {
    Pool<Counter> short_lived(*cluster, {.size = 1}, int64_t{0});
    holds = short_lived.call<&Counter::wait_for>(other);
    late = short_lived.call<&Counter::add>(1, 1);
  }
  CHECK(error_of([&] { (void)late.get(); }).kind() == ErrorKind::cancelled);
  CHECK_THAT(error_of([&] { (void)late.get(); }).message(), Contains("the pool of"));
  other.call<&Counter::open>().get();
}
