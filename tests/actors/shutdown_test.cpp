// The end of clusters: with work under way, with references alive, at once, twice, and again.
#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

#include "core/base/log.h"
#include "tests/support/error_of.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;

namespace {

std::atomic<int> hops{0}, ended{0};

}  // namespace

// Not in a namespace, so that errors name it like this.
struct Runner : Actor {
  ~Runner() override { ++ended; }
  void meet(RRef<Runner> other) { next = other; }
  // Passes on without waiting for anybody.
  void run(int left) {
    ++hops;
    if (left > 1) next.tell<&Runner::run>(left - 1);
  }
  Task<int> wait(Future<int> release) { co_return co_await release; }
  Task<int> wait_here() { return wait(gate.future()); }
  void open() { gate.set(1); }
  Task<int> drive(int times) {
    const Tensor x = ones({2});
    for (int i = 0; i < times; ++i) co_await next.call<&Runner::twice>(x);
    co_return times;
  }
  Tensor twice(Tensor x) { return ops::mul(x, 2); }
  RRef<Runner> next;
  Promise<int> gate;
  static constexpr auto remote =
      methods<&Runner::meet, &Runner::run, &Runner::wait_here, &Runner::open, &Runner::drive, &Runner::twice>;
};

namespace {

std::unique_ptr<Cluster> cluster_of(int workers, LeakCheck check = LeakCheck::error) {
  return Cluster::in_process(workers, hosting<Runner>(), {.leak_check = check});
}

// A ring of runners, one on each worker.
std::vector<RRef<Runner>> ring(Cluster& cluster) {
  std::vector<RRef<Runner>> all;
  for (const auto& name : cluster.workers()) all.push_back(cluster.spawn<Runner>(name));
  for (size_t i = 0; i < all.size(); ++i) all[i].call<&Runner::meet>(all[(i + 1) % all.size()]).get();
  return all;
}

}  // namespace

TEST_CASE("a shutdown right after a chain of twenty hops that nobody waits for lets all of them happen") {
  for (int round = 0; round < 20; ++round) {
    hops = 0;
    auto cluster = cluster_of(4, LeakCheck::off);
    auto runners = ring(*cluster);
    runners[0].tell<&Runner::run>(20);
    cluster->shutdown();
    CHECK(hops == 20);
  }
}

TEST_CASE("uneven work: what one worker still does for another is waited for, and finished") {
  auto cluster = cluster_of(3, LeakCheck::off);
  auto driving = cluster->spawn<Runner>("w1"), driven = cluster->spawn<Runner>("w2");
  driving.call<&Runner::meet>(driven).get();
  const auto answer = driving.call<&Runner::drive>(300);
  cluster->shutdown();
  REQUIRE(answer.is_ready());
  CHECK(answer.get() == 300);
}

TEST_CASE("a backward pass that nobody waits for is finished before the end") {
  auto cluster = cluster_of(3, LeakCheck::off);
  auto a = cluster->spawn<Runner>("w1"), b = cluster->spawn<Runner>("w2");
  const Tensor x = full({2}, 3.0).requires_grad_();
  autograd::Context context(*cluster);
  const auto done = context.backward_async({b.call<&Runner::twice>(a.call<&Runner::twice>(x)).get().sum()});
  cluster->shutdown();
  REQUIRE(done.is_ready());
  done.get();
}

TEST_CASE("references of user code go first, and actors with them: nothing leaks") {
  ended = 0;
  auto cluster = cluster_of(3);
  auto a = cluster->spawn<Runner>("w1"), b = cluster->spawn<Runner>("w2"), own = cluster->spawn<Runner>("w0");
  a.call<&Runner::meet>(b).get();  // a chain: b goes when a has gone
  const RRef<Runner> copy = b;
  cluster->here().set_name(cluster->spawn<Runner>("w2"), "named").get();
  cluster->shutdown();
  CHECK(ended == 4);
  CHECK(error_of([&] { a.call<&Runner::open>().get(); }).kind() == ErrorKind::cancelled);
  CHECK(error_of([&] { cluster->spawn<Runner>("w1"); }).kind() == ErrorKind::cancelled);
}

TEST_CASE("what leaks is listed by worker and type: an error, a warning or nothing, as asked") {
  static std::string warned;
  warned.clear();
  internal::log::set_sink([](internal::log::Level, const std::string& line) { warned += line; });
  for (const auto check : {LeakCheck::error, LeakCheck::warn, LeakCheck::off}) {
    auto cluster = cluster_of(3, check);
    {
      auto a = cluster->spawn<Runner>("w1"), b = cluster->spawn<Runner>("w2");
      a.call<&Runner::meet>(b).get();
      b.call<&Runner::meet>(a).get();  // they hold each other
    }
    if (check == LeakCheck::error) {
      const Error e = error_of([&] { cluster->shutdown(); });
      CHECK(e.kind() == ErrorKind::failed);
      CHECK_THAT(e.what(),
                 Contains("leaked") && Contains("Runner#0:1 on w1") && Contains("Runner#0:2 on w2"));
    } else {
      cluster->shutdown();
    }
    CHECK((warned.find("Runner#0:1 on w1, Runner#0:2 on w2") != std::string::npos) ==
          (check == LeakCheck::warn));
    warned.clear();
  }
  {
    auto cluster = cluster_of(2);
    autograd::Context open(*cluster);
    CHECK_THAT(error_of([&] { cluster->shutdown(); }).what(), Contains("1 contexts on w0"));
  }
  internal::log::set_sink(nullptr);
}

TEST_CASE(
    "a shutdown that cannot come to rest is bounded and names what goes on, and all ends nevertheless") {
  ended = 0;
  auto cluster = cluster_of(3);
  auto stuck = cluster->spawn<Runner>("w2");
  const auto never = stuck.call<&Runner::wait_here>();
  const Error e = error_of([&] { cluster->shutdown({.timeout = std::chrono::milliseconds(50)}); });
  CHECK(e.kind() == ErrorKind::deadline);
  CHECK_THAT(e.what(), Contains("still under way after") && Contains("Runner::wait_here") &&
                           (Contains("w2 has 1 calls or jobs under way") ||
                            Contains("w2 has 2 calls or jobs under way") ||  // the second comes and goes
                            Contains("w2 does not answer")));  // a loaded machine is later than the limit
  CHECK(error_of([&] { never.get(); }).kind() == ErrorKind::cancelled);
  CHECK(error_of([&] { stuck.call<&Runner::open>().get(); }).kind() == ErrorKind::cancelled);
  cluster.reset();
  CHECK(ended == 1);
}

TEST_CASE("an immediate shutdown waits for nothing, and a second one of either kind does nothing") {
  auto cluster = cluster_of(3);
  auto stuck = cluster->spawn<Runner>("w2");
  const auto never = stuck.call<&Runner::wait_here>();
  cluster->shutdown({.graceful = false});
  CHECK(error_of([&] { never.get(); }).kind() == ErrorKind::cancelled);
  cluster->shutdown();
  cluster->shutdown({.graceful = false});
}

TEST_CASE("a cluster can be shut down right after its start, after traffic, and made again") {
  for (int round = 0; round < 10; ++round) {
    auto cluster = cluster_of(1 + round % 3);
    if (round % 2) {
      auto a = cluster->spawn<Runner>(cluster->workers().back());
      for (int i = 0; i < 20; ++i) (void)a.call<&Runner::twice>(ones({2}));
    }
    cluster->shutdown();
  }
}
