// Faults of the network in memory that need more than a probability: repaired links, resets, crashes at a
// message.
#include <algorithm>

#include "tests/net/sim_support.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace std::chrono_literals;

namespace {

void settle(Network& network) {
  while (network.step()) {
  }
}

// Writes down what it sees, and acts at the n-th message.
struct Watcher : Observer {
  Network& network;
  std::vector<std::string> seen;
  std::function<void()> act = [] {};
  std::string when;  // "sending 2"
  explicit Watcher(Network& n) : network(n) { network.observe(this); }
  ~Watcher() override { network.observe(nullptr); }
  void note(const std::string& what, const Message& m) {
    seen.push_back(what + " " + std::to_string(m.header[0]));
    if (seen.back() == when) act();
  }
  void sending(const std::string&, const std::string&, const Message& m) override { note("sending", m); }
  void arriving(const std::string&, const std::string&, const Message& m) override { note("arriving", m); }
  void handled(const std::string& from, const std::string& to) override {
    seen.push_back(from + " to " + to + " handled");
  }
};

}  // namespace

TEST_CASE("a connection makes good what its link does: messages come once and in order, later", "[sim]") {
  Network network(5, true);
  SimNode a(network, "a"), b(network, "b");
  network.set_faults({.delay = 1ms});
  auto there = link_up(network, a, b);
  network.set_faults(
      {.delay = 1ms, .jitter = 1ms, .drop = 0.1, .duplicate = 0.2, .reorder = 0.2, .resend = 200ms});
  std::vector<uint64_t> all;
  for (uint64_t i = 0; i < 500; ++i) there->send(numbered(i)), all.push_back(i);
  settle(network);
  const auto c = network.counters();
  CHECK((c.dropped > 20 && c.duplicated > 50 && c.reordered > 50));
  CHECK(b.numbers == all);
  CHECK(b.times.back() - TimePoint{} > 200ms);
  CHECK(b.closed.empty());
  there->close("done");
  settle(network);
  CHECK(b.closed.size() == 1);
}

TEST_CASE("a reset breaks the connections that one side opened, and no other", "[sim]") {
  Network network(1, true);
  SimNode a(network, "a"), b(network, "b");
  network.set_faults({.delay = 1ms});
  auto there = link_up(network, a, b), back = link_up(network, b, a);
  there->send(numbered(1));
  network.reset("a", "b");
  CHECK(kind_thrown([&] { there->send(numbered(2)); }) == ErrorKind::disconnected);
  back->send(numbered(3));
  settle(network);
  CHECK(b.numbers == std::vector<uint64_t>{1});  // was on its way
  CHECK(a.numbers == std::vector<uint64_t>{3});
  CHECK((a.closed.size() == 1 && b.closed.size() == 1));
}

TEST_CASE("what a node had sent when it crashed is lost, or arrives before the others hear of it", "[sim]") {
  const InFlight in_flight = GENERATE(InFlight::lost, InFlight::arrives);
  Network network(1, true);
  SimNode a(network, "a"), b(network, "b");
  network.set_faults({.delay = 1ms});
  auto there = link_up(network, a, b);
  there->send(numbered(1));
  network.crash("a", in_flight);
  settle(network);
  CHECK(b.numbers == (in_flight == InFlight::lost ? std::vector<uint64_t>{} : std::vector<uint64_t>{1}));
  REQUIRE(b.closed.size() == 1);
  CHECK(b.closed[0].find("it has crashed") != std::string::npos);
  CHECK(a.closed.empty());
}

TEST_CASE("an observer sees every message on both sides, and can end nodes in between", "[sim]") {
  Network network(1, true);
  SimNode a(network, "a"), b(network, "b");
  network.set_faults({.delay = 1ms});
  auto there = link_up(network, a, b);
  Watcher watcher(network);
  using Strings = std::vector<std::string>;
  SECTION("it only looks") {
    there->send(numbered(1));
    settle(network);
    CHECK(watcher.seen == Strings{"sending 1", "arriving 1", "a to b handled"});
  }
  SECTION("a sender that crashes sends nothing") {
    watcher.when = "sending 2";
    watcher.act = [&] { network.crash("a", InFlight::arrives); };
    there->send(numbered(1));
    CHECK(kind_thrown([&] { there->send(numbered(2)); }) == ErrorKind::disconnected);
    settle(network);
    CHECK(b.numbers == std::vector<uint64_t>{1});
  }
  SECTION("a receiver that crashes does not see the message") {
    watcher.when = "arriving 2";
    watcher.act = [&] { network.crash("b"); };
    there->send(numbered(1));
    there->send(numbered(2));
    settle(network);
    CHECK(b.numbers == std::vector<uint64_t>{1});
    CHECK(a.closed.size() == 1);
  }
}
