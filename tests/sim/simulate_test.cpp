// Tests in simulated clusters: planted bugs are found, made short, and found again by their line.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <set>

#include "troupe/simulated.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

struct Account : Actor {
  explicit Account(int64_t start) : money(start) {}
  void add(int64_t n) { money += n; }
  /// Nothing of it comes twice.
  void take_part(int64_t transfer, int64_t n) {
    if (seen.insert(transfer).second) money += n;
  }
  int64_t balance() { return money; }
  int64_t money;
  std::set<int64_t> seen;
  static constexpr auto remote = methods<&Account::add, &Account::take_part, &Account::balance>;
};

struct Teller : Actor {
  Task<void> move(RRef<Account> from, RRef<Account> to, int64_t n) {
    co_await from.call<&Account::add>(-n);
    co_await to.call<&Account::add>(n);
  }
  Task<void> move_once(RRef<Account> from, RRef<Account> to, int64_t transfer, int64_t n) {
    co_await from.call<&Account::take_part>(transfer, -n);
    co_await to.call<&Account::take_part>(transfer, n);
  }
  static constexpr auto remote = methods<&Teller::move, &Teller::move_once>;
};

void check_sum(const RRef<Account>& a, const RRef<Account>& b) {
  const auto of_a = a.call<&Account::balance>().wait(), of_b = b.call<&Account::balance>().wait();
  if (!of_a.ok() || !of_b.ok()) return;  // the bank is lost
  if (const int64_t sum = of_a.value() + of_b.value(); sum != 100)
    throw std::runtime_error("there are " + std::to_string(sum) + " in the bank");
}

void loses_money(SimulatedCluster& cluster) {
  auto a = cluster.spawn<Account>("w1", 100), b = cluster.spawn<Account>("w1", 0);
  auto teller = cluster.spawn<Teller>("w2");
  (void)teller.call<&Teller::move>(a, b, 30).wait();
  check_sum(a, b);
}

// Whoever knows that the transfer began ends it.
void keeps_money(SimulatedCluster& cluster) {
  auto a = cluster.spawn<Account>("w1", 100), b = cluster.spawn<Account>("w1", 0);
  bool moved = false;
  for (const char* on : {"w2", "w3", "w0"}) {
    if (moved) break;
    auto teller = cluster.spawn<Teller>(on);
    moved = teller.call<&Teller::move_once>(a, b, 1, 30).wait().ok();
  }
  if (moved) check_sum(a, b);
}

struct Friend : Actor {
  void keep(RRef<Friend> other) { friend_ = other; }
  Task<void> wait() { co_await gate.future(); }
  RRef<Friend> friend_;
  Promise<void> gate;
  static constexpr auto remote = methods<&Friend::keep, &Friend::wait>;
};

struct Layer : Actor {
  Tensor forward(Tensor x) { return tanh(fc(x)); }
  Tensors parameters() override { return fc.parameters(); }
  Tensor weight() { return fc.weight.detach(); }
  nn::Linear fc{4, 4};
  static constexpr auto remote = methods<&Layer::forward, &Layer::weight>;
};

std::string failure_of(const SimulateResult& result) { return result.failure.value_or("nothing failed"); }

}  // namespace

TEST_CASE("a teller that dies between two calls loses money and is found by one fault and found again") {
  const SimulateOptions options{.workers = 4, .kills = 2, .losses = 1, .partitions = 2};
  const SimulateResult result = simulate("transfers", loses_money, options);
  INFO(failure_of(result));
  REQUIRE(result.failure);
  REQUIRE(result.run);
  CHECK(result.runs < 100);
  CHECK(result.run->faults.size() == 1);  // of 5
  CHECK(result.failure->find("there are 70 in the bank") != std::string::npos);
  CHECK(result.failure->find("by 1 of 5 faults") != std::string::npos);
  CHECK(result.failure->find("call of add") != std::string::npos);
  const std::string line = "transfers " + result.run->text();
  CHECK(result.failure->find("again: TROUPE_SIMULATED='" + line + "'") != std::string::npos);

  setenv("TROUPE_SIMULATED", line.c_str(), 1);
  const SimulateResult again = simulate("transfers", loses_money, options),
                       other = simulate("others", loses_money, options);
  unsetenv("TROUPE_SIMULATED");
  CHECK(again.runs == 1);
  REQUIRE(again.failure);
  CHECK(again.failure->find("there are 70 in the bank") != std::string::npos);
  CHECK(other.runs == 0);
  CHECK_FALSE(other.failure);
}

TEST_CASE("a transfer that is repeated until it is known to be whole keeps all money whatever breaks") {
  const SimulateResult result =
      simulate("whole", keeps_money,
               {.workers = 4, .runs = 300, .kills = 2, .resets = 1, .losses = 1, .partitions = 1});
  INFO(failure_of(result));
  CHECK_FALSE(result.failure);
  CHECK(result.runs == 300);
  CHECK(result.faults > 600);
  CHECK(result.messages > 3000);
}

TEST_CASE("each kind of fault is found by a test that no such fault may meet") {
  const auto calls = [](SimulatedCluster& cluster) {
    auto a = cluster.spawn<Account>("w1", 100);
    auto teller = cluster.spawn<Teller>("w2");
    teller.call<&Teller::move>(a, a, 1).get();
  };
  const SimulateOptions none{.runs = 40, .kills = 0};
  CHECK_FALSE(simulate("calm", calls, none).failure);
  using Kind = SimulatedFault::Kind;
  for (const Kind kind : {Kind::kill, Kind::reset, Kind::loss, Kind::partition}) {
    SimulateOptions one = none;
    (kind == Kind::kill    ? one.kills
     : kind == Kind::reset ? one.resets
     : kind == Kind::loss  ? one.losses
                           : one.partitions) = 1;
    const SimulateResult result = simulate("calls", calls, one);
    INFO(failure_of(result));
    REQUIRE(result.run);
    REQUIRE(result.run->faults.size() == 1);
    CHECK(result.run->faults[0].kind == kind);
    CHECK(result.failure->find("was lost") != std::string::npos);
  }
}

TEST_CASE("a run that never ends and one that leaves something fail and so does one that waits in vain") {
  const auto circle = [](SimulatedCluster& cluster) {
    auto a = cluster.spawn<Friend>("w1"), b = cluster.spawn<Friend>("w2");
    a.call<&Friend::keep>(b).get(), b.call<&Friend::keep>(a).get();
  };
  const auto left = simulate("circle", circle, {.kills = 0});
  INFO(failure_of(left));
  REQUIRE(left.failure);
  CHECK(left.failure->find("something is left when the test has ended: w1: actors 1") != std::string::npos);
  CHECK_FALSE(simulate("circle", circle, {.kills = 0, .check_left = false}).failure);

  const auto endless = [](SimulatedCluster& cluster) {
    auto a = cluster.spawn<Account>("w1", 0);
    while (a.call<&Account::balance>().get() == 0) {
    }
  };
  const auto ended = simulate("endless", endless, {.kills = 0, .most_messages = 1000});
  REQUIRE(ended.failure);
  CHECK(ended.failure->find("more than 1000 messages have been sent") != std::string::npos);

  const auto stuck =
      simulate("stuck", [](SimulatedCluster&) { Promise<void>().future().get(); }, {.kills = 0});
  REQUIRE(stuck.failure);  // whoever should have given the value has gone
  const auto waits = simulate("waits",
                              [](SimulatedCluster&) {
                                const Promise<void> never;
                                never.future().get();
                              },
                              {.kills = 0});
  REQUIRE(waits.failure);
  CHECK(waits.failure->find("nothing is left to happen") != std::string::npos);
}

TEST_CASE("a test that is no function of its seed is called so") {
  int runs = 0;
  const auto result = simulate("unsteady",
                               [&](SimulatedCluster&) {
                                 if (++runs == 3) throw std::runtime_error("the third");
                               },
                               {.kills = 0});
  REQUIRE(result.failure);
  CHECK(result.failure->find("no function of its seed") != std::string::npos);
}

TEST_CASE("waits are by the clock of the cluster: an hour passes at once and a deadline is exact") {
  SimulatedCluster cluster(1, 2, {}, {.links = {.delay = 10ms}});
  auto a = cluster.spawn<Account>("w1", 5);
  CHECK(a.call<&Account::balance>().get() == 5);
  CHECK(cluster.now() == 40ms);  // to be connected, and the call there and back
  const auto late = a.call<&Account::balance>();
  CHECK_FALSE(late.wait_for(19ms));
  CHECK(cluster.now() == 59ms);
  CHECK(late.wait_for(2ms));
  CHECK(cluster.now() == 60ms);
  cluster.pass(1h);
  CHECK(cluster.now() == 1h + 60ms);
  CHECK_THROWS_WITH(a.with_timeout(15ms).call<&Account::balance>().get(),
                    Catch::Contains("no answer within 15 ms"));
}

TEST_CASE("a fault that ends heals no cut of two workers that is not its own") {
  using Kind = SimulatedFault::Kind;
  for (const bool by_hand : {true, false})
    for (const bool over : {true, false}) {
      INFO("cut by hand " << by_hand << ", and over " << over);
      SimulatedCluster cluster(1, 2, {}, {.links = {.delay = 1ms}});
      auto a = cluster.spawn<Account>("w1", 5);
      auto b = cluster.here(1).spawn<Account>(0, int64_t{7});  // over a connection of its own
      CHECK(a.call<&Account::balance>().get() == 5);
      CHECK(b.call<&Account::balance>().get() == 7);
      cluster.settle();
      const uint64_t sent = cluster.messages();
      const SimulatedFault shorter{.kind = Kind::loss, .message = sent + 1},
          longer{.kind = Kind::partition, .message = sent + 1, .lasts = 2s};
      if (by_hand) cluster.partition("w1", "w0");
      cluster.plan(by_hand ? std::vector{shorter} : std::vector{longer, shorter});
      CHECK_FALSE(a.with_timeout(10ms).call<&Account::balance>().wait().ok());
      CHECK(cluster.faults_met() == (by_hand ? 1U : 2U));
      if (over && by_hand) cluster.heal("w0", "w1");
      if (over && !by_hand) cluster.pass(3s);
      CHECK(b.with_timeout(100ms).call<&Account::balance>().wait().ok() == over);
    }
}

TEST_CASE("a driver trains in a simulated cluster as in a real one and gets the same bits") {
  const auto train = [](Cluster& cluster) {
    manual_seed(3);
    auto a = cluster.spawn<Layer>("w1"), b = cluster.spawn<Layer>("w2");
    optim::Distributed<optim::SGD> optimizer({a, b}, {.lr = 0.1});
    const Tensor x = rand({8, 4});
    for (int i = 0; i < 3; ++i) {
      autograd::Context step(cluster);
      step.backward(b(a(x)).get().sum());
      optimizer.step(step);
    }
    return b.call<&Layer::weight>().get().to_vector<float>();
  };
  std::vector<float> weights;
  {
    SimulatedCluster simulated(5, 3, {}, {.links = {.delay = 1ms, .jitter = 5ms}});
    weights = train(simulated);
    simulated.settle();
    CHECK(simulated.left() == "");
  }
  CHECK(weights == train(*Cluster::in_process(3)));
}

TEST_CASE("faults and runs are read from what they say and all else is refused") {
  for (const char* text : {"1", "17 kill:12:arriving:receiver", "3 even reset:1:handled loss:9:sending",
                           "8 kill:2:sending:last-words partition:3:sending:receiver:250000us",
                           "4 partition:3:sending:315360000000000us"})
    CHECK(SimulatedRun::of(text).text() == text);
  for (const char* text :
       {"", "x", "1 kill", "1 kill:2", "1 kill:x:sending", "1 kill:2:sleeping", "1 eat:2:sending",
        "1 kill:2:sending:5ms", "-1", "1 kill:0:sending", "1 partition:3:sending:18446744073709551615us",
        "1 partition:3:sending:9223372036854776us"}) {
    INFO(text);
    CHECK_THROWS_WITH(SimulatedRun::of(text), Catch::Contains("expected"));
  }
  CHECK_THROWS_WITH(simulate("two words", loses_money), Catch::Contains("one word"));
  CHECK_THROWS_WITH(simulate("a", loses_money, {.workers = 1}), Catch::Contains("nobody is left"));
  CHECK_THROWS_WITH(simulate("a", loses_money, {.longest_partition = -1us}),
                    Catch::Contains("longest_partition is -1000 ns; expected 0 to"));
  SimulatedCluster cluster(1);
  CHECK_THROWS_WITH(cluster.kill("w0"), Catch::Contains("it drives"));
  CHECK_THROWS_WITH(cluster.kill("w7"), Catch::Contains("there are w0 to w2"));
  cluster.kill("w1");
  CHECK_FALSE(cluster.is_alive("w1"));
  CHECK_THROWS_WITH(cluster.kill("w1"), Catch::Contains("already"));
}
