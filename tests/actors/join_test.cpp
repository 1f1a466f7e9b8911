// Who is let in: workers that all others can reach.
#include "actors/cluster/join.h"

#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <thread>

#include "net/sim/network.h"
#include "tests/support/error_of.h"

using namespace troupe;
using Catch::Contains;
using troupe::testing::text_of;

namespace {

constexpr Duration kLong = std::chrono::minutes(5);

// One worker of a cluster whose workers say of themselves that they are on these hosts.
struct Resident {
  Resident(internal::net::Network& network, WorkerId id, std::string host, std::vector<std::string> addresses)
      : worker({.id = id,
                .name = "w" + std::to_string(id),
                .host = host,
                .runtime = internal::actors::Runtime::make(2)}),
        self{id, worker.name(), host, std::move(addresses)} {
    transport = [this, &network] {
      worker.set_transport(network.make_transport(
          worker.name(),
          {.self = {worker.id(), worker.name()}, .token = "a token for tests of joining", .limits = {}},
          worker));
    };
  }
  ~Resident() {
    listener.reset();
    worker.disconnect();
  }
  internal::actors::Worker worker;
  internal::actors::Member self;
  std::function<void()> transport;  // opens it, once services are installed
  std::unique_ptr<internal::net::Listener> listener;
};

struct Driver : Resident {
  Driver(internal::net::Network& network, uint32_t world)
      : Resident(network, 0, "A", {"tcp:10.0.0.1:29500"}), coordinator(worker, self, world) {
    transport();
    listener = worker.transport().listen("sim:w0");
  }
  ~Driver() {
    listener.reset();
    worker.disconnect();
  }
  internal::actors::Coordinator coordinator;
};

struct Newcomer : Resident {
  Newcomer(internal::net::Network& network, WorkerId id, std::string host, std::vector<std::string> addresses)
      : Resident(network, id, std::move(host), std::move(addresses)), joiner(worker) {
    transport();
  }
  ~Newcomer() { worker.disconnect(); }
  std::string join(uint32_t world) {
    return text_of([&] { joiner.join("sim:w0", self, world, kLong); });
  }
  internal::actors::Joiner joiner;
};

}  // namespace

TEST_CASE("a worker on another host that listens on loopback is refused, and told what to set", "[actors]") {
  for (const std::string address : {"tcp:127.0.0.1:4000", "tcp:[::1]:4000", "tcp:0.0.0.0:4000"}) {
    internal::net::Network network;
    Driver driver(network, 2);
    auto formed =
        std::async(std::launch::async, [&] { return text_of([&] { driver.coordinator.wait(kLong); }); });
    Newcomer forgot(network, 1, "B", {"unix:@troupe-b", address});
    for (const std::string& said : {forgot.join(2), formed.get()})
      CHECK_THAT(said, Contains("w1 listens at " + address + ", which only its own host can reach") &&
                           Contains("w0 is on another one") && Contains("set TROUPE_BIND for w1"));
  }
}

TEST_CASE("those that come to a meeting that has failed hear why, too, and then all have been told",
          "[actors]") {
  internal::net::Network network;
  Driver driver(network, 4);
  Newcomer forgot(network, 1, "B", {"tcp:127.0.0.1:4000"}), second(network, 2, "A", {"tcp:10.0.0.1:4000"}),
      third(network, 3, "A", {"tcp:10.0.0.1:4001"});
  auto waiting = std::async(std::launch::async, [&] { return second.join(4); });
  while (driver.worker.members().all().size() < 2) std::this_thread::yield();  // it has joined
  const auto why = Contains("w1 listens at tcp:127.0.0.1:4000, which only its own host can reach");
  CHECK_THAT(forgot.join(4), why);
  CHECK_THAT(waiting.get(), why);
  CHECK_THAT(text_of([&] { driver.coordinator.wait(kLong); }), why);
  auto told = std::async(std::launch::async, [&] { driver.coordinator.tell_all(kLong); });
  CHECK(told.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout);
  CHECK_THAT(third.join(4), why);
  told.get();
}

TEST_CASE("the last word on a worker that has not joined says why it was refused", "[actors]") {
  internal::net::Network network;
  Driver driver(network, 2);
  Newcomer wrong(network, 1, "A", {"tcp:10.0.0.1:4000"});
  const auto why = Contains("w1 was started for a cluster of 3 workers, this one has 2");
  CHECK_THAT(wrong.join(3), why);
  CHECK_THAT(text_of([&] { driver.coordinator.wait(std::chrono::milliseconds(1)); }),
             Contains("these workers have not joined: w1; [cluster] w1 was started for") && why);
}

TEST_CASE("workers of one host may listen on loopback as long as nobody is elsewhere", "[actors]") {
  internal::net::Network network;
  Driver driver(network, 2);
  Newcomer neighbour(network, 1, "A", {"unix:@troupe-a", "tcp:127.0.0.1:4000"});
  auto joined =
      std::async(std::launch::async, [&] { neighbour.joiner.join("sim:w0", neighbour.self, 2, kLong); });
  driver.coordinator.wait(kLong);
  joined.get();
}

TEST_CASE("a worker that joined on loopback is named to all when one of another host comes", "[actors]") {
  internal::net::Network network;
  Driver driver(network, 3);
  Newcomer first(network, 1, "A", {"unix:@troupe-a", "tcp:127.0.0.1:4000"}),
      second(network, 2, "B", {"tcp:10.0.0.2:4000"});
  auto waiting = std::async(std::launch::async, [&] { return first.join(3); });
  while (driver.worker.members().all().size() < 2) std::this_thread::yield();  // it has joined
  const auto why =
      Contains("w1 listens at tcp:127.0.0.1:4000, which only its own host can reach, and w2 is on");
  CHECK_THAT(second.join(3), why);
  CHECK_THAT(waiting.get(), why);
  CHECK_THAT(text_of([&] { driver.coordinator.wait(kLong); }), why);
}
