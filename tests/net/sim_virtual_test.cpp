// The simulated network in virtual time: clock, faults, partitions, crashes; the same run from the same seed.
#include "core/base/generator.h"
#include "tests/net/sim_support.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace std::chrono_literals;

namespace {

std::vector<uint64_t> counting(uint64_t n) {
  std::vector<uint64_t> v(n);
  for (uint64_t i = 0; i < n; ++i) v[i] = i;
  return v;
}

}  // namespace

TEST_CASE("nothing moves by itself in virtual time", "[sim]") {
  Network network(1, true);
  SimNode a(network, "a"), b(network, "b");
  network.set_faults({.delay = 10ms});
  const TimePoint start = network.clock().now();
  auto connecting = a.transport->connect("sim:b");
  REQUIRE_FALSE(connecting.is_ready());
  REQUIRE(network.run(19ms) > 0);
  REQUIRE(network.clock().now() == start + 19ms);
  REQUIRE(b.accepted.size() == 1);
  REQUIRE_FALSE(connecting.is_ready());
  network.run(1ms);
  REQUIRE(connecting.is_ready());  // after one round trip
  connecting.get()->send(numbered(1));
  REQUIRE(b.numbers.empty());
  while (network.step()) {
  }
  REQUIRE(b.numbers.size() == 1);
  REQUIRE(network.clock().now() == start + 30ms);
  REQUIRE_FALSE(network.step());
  REQUIRE(network.run(1h) == 0);
  REQUIRE(network.clock().now() == start + 30ms);
}

TEST_CASE("scheduled functions run at their time, in order", "[sim]") {
  Network network(1, true);
  std::vector<int> order;
  const TimePoint start = network.clock().now();
  network.schedule(3s, [&] { order.push_back(3); });
  network.schedule(1s, [&] {
    order.push_back(1);
    network.schedule(1s, [&] { order.push_back(2); });
  });
  network.schedule(3s, [&] { order.push_back(4); });
  REQUIRE(network.run(2500ms) == 2);
  REQUIRE(network.clock().now() == start + 2500ms);
  REQUIRE(network.run() == 2);
  REQUIRE(order == std::vector<int>{1, 2, 3, 4});
  REQUIRE(network.clock().now() == start + 3s);
}

TEST_CASE("bandwidth is shared by the messages of a link", "[sim]") {
  Network network(1, true);
  SimNode a(network, "a"), b(network, "b");
  auto there = link_up(network, a, b);
  network.set_faults("a", "b", {.delay = 5ms, .bytes_per_second = 1000});
  const TimePoint start = network.clock().now();
  there->send(numbered(0, 992));  // with its header, 1000 bytes: one second
  there->send(numbered(1, 492));
  b.accepted[0]->send(numbered(7, 992));  // the way back is free
  while (network.step()) {
  }
  REQUIRE(b.times == std::vector<TimePoint>{start + 1005ms, start + 1505ms});
  REQUIRE(a.times == std::vector<TimePoint>{start});
}

TEST_CASE("jitter keeps the order of a connection", "[sim]") {
  Network network(5, true);
  SimNode a(network, "a"), b(network, "b");
  network.set_faults({.delay = 1ms, .jitter = 50ms});
  auto there = link_up(network, a, b);
  for (uint64_t i = 0; i < 500; ++i) {
    there->send(numbered(i));
    network.run(1ms);
  }
  while (network.step()) {
  }
  REQUIRE(b.numbers == counting(500));
  const auto c = network.counters("a", "b");
  REQUIRE((c.messages == 500 && c.bytes == 4000 && c.dropped == 0 && c.reordered == 0 && c.duplicated == 0));
  REQUIRE(network.counters("b", "a").messages == 0);
  REQUIRE(network.counters("x", "y").messages == 0);
}

TEST_CASE("duplicates and overtaking happen only where asked for, and are counted", "[sim]") {
  Network network(5, true);
  SimNode a(network, "a"), b(network, "b");
  network.set_faults({.delay = 1ms});
  auto there = link_up(network, a, b);
  network.set_faults("a", "b", {.delay = 1ms, .duplicate = 0.2, .reorder = 0.2});
  for (uint64_t i = 0; i < 500; ++i) there->send(numbered(i, 8));
  while (network.step()) {
  }
  const auto c = network.counters();
  REQUIRE(c.duplicated > 50);
  REQUIRE(c.reordered > 50);
  REQUIRE(c.messages == 500);
  REQUIRE(b.numbers.size() == 500 + c.duplicated);
  auto sorted = b.numbers;
  REQUIRE_FALSE(std::is_sorted(sorted.begin(), sorted.end()));
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  REQUIRE(sorted == counting(500));
}

TEST_CASE("a lost message breaks its connection, without a gap", "[sim]") {
  Network network(11, true);
  SimNode a(network, "a"), b(network, "b");
  network.set_faults({.delay = 1ms});
  auto there = link_up(network, a, b);
  network.set_faults({.delay = 1ms, .drop = 0.05});
  for (uint64_t i = 0; i < 300; ++i) there->send(numbered(i));
  while (network.step()) {
  }
  REQUIRE(b.numbers.size() < 300);
  REQUIRE(b.numbers == counting(b.numbers.size()));
  REQUIRE((a.closed.size() == 1 && b.closed.size() == 1));
  REQUIRE(network.counters().dropped > 0);
  REQUIRE(kind_thrown([&] { there->send(numbered(0)); }) == ErrorKind::disconnected);
}

TEST_CASE("a partition is noticed by silence", "[sim]") {
  Network network(1, true);
  Limits slow;
  slow.dead_after = 8s;
  SimNode a(network, "a"), b(network, "b", slow), c(network, "c");
  auto ab = link_up(network, a, b), ac = link_up(network, a, c);
  const TimePoint start = network.clock().now();
  network.partition("a", "b");
  ac->send(numbered(1));
  auto refused = a.transport->connect("sim:b");
  while (network.step()) {
  }
  REQUIRE((a.closed.size() == 1 && a.times[0] == start + Limits{}.dead_after));
  REQUIRE((b.closed.size() == 1 && b.times[0] == start + 8s));
  REQUIRE((c.numbers.size() == 1 && c.closed.empty()));
  REQUIRE(a.closed[0].find("b") != std::string::npos);
  REQUIRE(kind_of(refused) == ErrorKind::disconnected);
  REQUIRE(network.clock().now() == start + Limits{}.connect);

  auto patient = a.transport->connect("sim:b", true);
  network.run(1s);
  REQUIRE_FALSE(patient.is_ready());
  network.heal("a", "b");
  network.run(1s);
  REQUIRE(patient.is_ready());
  patient.get()->send(numbered(2));
  network.run(1s);
  REQUIRE(b.numbers == std::vector<uint64_t>{2});
}

TEST_CASE("a short partition is survived by what lost nothing", "[sim]") {
  Network network(1, true);
  SimNode a(network, "a"), b(network, "b");
  auto idle = link_up(network, a, b), busy = link_up(network, a, b), late = link_up(network, a, b);
  busy->send(numbered(1));
  network.run(1ms);
  network.set_faults({.delay = 100ms});
  late->send(numbered(10));  // in flight when the link is cut
  network.partition("a", "b");
  busy->send(numbered(2));
  network.run(1s);
  network.heal("b", "a");
  busy->send(numbered(3));  // must not arrive: number 2 is missing
  late->send(numbered(11));
  idle->send(numbered(20));
  while (network.step()) {
  }
  REQUIRE(b.numbers == std::vector<uint64_t>{1, 20});
  REQUIRE((a.closed.size() == 2 && b.closed.size() == 2));  // busy and late
  REQUIRE(network.counters("a", "b").dropped == 2);
  REQUIRE_NOTHROW(idle->send(numbered(21)));
  REQUIRE(kind_thrown([&] { busy->send(numbered(4)); }) == ErrorKind::disconnected);
}

TEST_CASE("a close into a partition reaches the other side as silence", "[sim]") {
  Network network(1, true);
  SimNode a(network, "a"), b(network, "b");
  auto there = link_up(network, a, b);
  network.partition("a", "b");
  there->close("done");
  network.run(1s);
  network.heal("a", "b");
  REQUIRE((a.closed.size() == 1 && b.closed.empty()));
  while (network.step()) {
  }
  REQUIRE((a.closed.size() == 1 && b.closed.size() == 1));
}

TEST_CASE("a crash is seen at once by the others, and not by the crashed", "[sim]") {
  Network network(1, true);
  SimNode a(network, "a"), b(network, "b"), c(network, "c");
  network.set_faults({.delay = 10ms});
  auto ab = link_up(network, a, b), ca = link_up(network, c, a);
  ab->send(numbered(1));
  ca->send(numbered(2));
  const TimePoint start = network.clock().now();
  network.crash("a");
  while (network.step()) {
  }
  REQUIRE((b.closed.size() == 1 && c.closed.size() == 1));
  REQUIRE((b.times[0] == start && c.times[0] == start));
  REQUIRE((a.numbers.empty() && a.closed.empty() && b.numbers.empty()));
  REQUIRE(kind_thrown([&] { ab->send(numbered(3)); }) == ErrorKind::disconnected);
  auto to_dead = b.transport->connect("sim:a");
  while (network.step()) {
  }
  REQUIRE(kind_of(to_dead) == ErrorKind::disconnected);
  SimNode restarted(network, "a");
  REQUIRE(link_up(network, b, restarted)->peer().name == "a");
}

TEST_CASE("a client that crashes in the middle of connecting leaves nothing behind", "[sim]") {
  for (int64_t after : {0, 5, 10, 15, 20}) {
    Network network(1, true);
    SimNode a(network, "a"), b(network, "b");
    network.set_faults({.delay = 10ms});
    auto connecting = a.transport->connect("sim:b");
    network.run(std::chrono::milliseconds(after));
    network.crash("a");
    while (network.step()) {
    }
    REQUIRE(connecting.is_ready());
    REQUIRE(b.accepted.size() == b.closed.size());
    REQUIRE(a.closed.empty());
  }
}

TEST_CASE("a slow link bounds its writers in virtual time", "[sim]") {
  Network network(1, true);
  Limits limits;
  limits.queue_bytes = 10000;
  SimNode a(network, "a", limits), b(network, "b");
  auto there = link_up(network, a, b);
  network.set_faults({.bytes_per_second = 1000});
  for (uint64_t i = 0; i < 10; ++i) there->send(numbered(i, 992));
  REQUIRE(there->queued_bytes() == 10000);
  REQUIRE(kind_thrown([&] { there->send(numbered(10)); }) == ErrorKind::overloaded);
  auto writable = there->writable();
  network.run(4500ms);
  REQUIRE_FALSE(writable.is_ready());
  network.run(1s);
  REQUIRE(writable.is_ready());
  REQUIRE(there->queued_bytes() == 5000);
  auto full = there->writable();
  REQUIRE(full.is_ready());
  for (uint64_t i = 10; i < 15; ++i) there->send(numbered(i, 992));
  auto ending = there->writable();
  there->close("no more");
  REQUIRE(kind_of(ending) == ErrorKind::disconnected);
  while (network.step()) {
  }
  REQUIRE(b.numbers == counting(15));
  REQUIRE((a.closed.size() == 1 && b.closed.size() == 1));
}

TEST_CASE("a retrying connect gives up at its limit", "[sim]") {
  Network network(1, true);
  SimNode a(network, "a");
  const TimePoint start = network.clock().now();
  auto never = a.transport->connect("sim:later", true);
  auto at_once = a.transport->connect("sim:later");
  while (network.step()) {
  }
  REQUIRE(kind_of(never) == ErrorKind::disconnected);
  REQUIRE(kind_of(at_once) == ErrorKind::disconnected);
  REQUIRE(network.clock().now() == start + Limits{}.connect);
}

TEST_CASE("the same seed gives the same run, another seed another one", "[sim]") {
  const auto play = [](uint64_t seed) {
    std::vector<std::string> log;
    Network network(seed, true);
    network.set_faults({.delay = 1ms, .jitter = 20ms, .bytes_per_second = 1e6, .drop = 0.002});
    std::vector<std::unique_ptr<SimNode>> nodes;
    for (int i = 0; i < 6; ++i) {
      nodes.push_back(std::make_unique<SimNode>(network, "n" + std::to_string(i)));
      nodes.back()->log = &log;
      nodes.back()->on_each = [](Connection& c, Message& m) {
        if (m.header[0] % 7) c.send(numbered(m.header[0] - 1, m.header[0] % 100));
      };
    }
    Generator choices(99);  // the same scenario for every seed
    for (int i = 0; i < 40; ++i) {
      const auto when = Duration(static_cast<int64_t>(choices.below(1'000'000'000)));
      const auto from = choices.below(6), to = choices.below(6);
      network.schedule(when, [&nodes, from, to] {
        nodes[from]->transport->connect("sim:n" + std::to_string(to)).on_ready([](const auto& connected) {
          if (!connected.ok()) return;  // the scenario has crashes
          for (uint64_t k = 1; k < 60; ++k) connected.value()->send(numbered(k));
        });
      });
    }
    network.schedule(300ms, [&] { network.partition("n0", "n1"); });
    network.schedule(600ms, [&] { network.crash("n2"); });
    network.schedule(900ms, [&] { network.heal("n0", "n1"); });
    network.run();
    for (auto& n : nodes) n->log = nullptr;
    return log;
  };
  const auto first = play(1);
  REQUIRE(first.size() > 1000);
  REQUIRE(first == play(1));
  REQUIRE(first != play(2));
}

TEST_CASE("a thousand simulated nodes talk to one", "[sim]") {
  Network network(1, true);
  SimNode hub(network, "hub");
  network.set_faults({.delay = 1ms, .jitter = 1ms});
  hub.on_each = [](Connection& c, Message& m) { c.send(numbered(m.header[0])); };
  std::vector<std::unique_ptr<SimNode>> nodes;
  for (uint64_t i = 0; i < 1000; ++i) {
    nodes.push_back(std::make_unique<SimNode>(network, "n" + std::to_string(i)));
    nodes.back()->transport->connect("sim:hub").on_ready(
        [i](const auto& hub) { hub.value()->send(numbered(i)); });
  }
  while (network.step()) {
  }
  REQUIRE(hub.numbers.size() == 1000);
  for (uint64_t i = 0; i < 1000; ++i) REQUIRE(nodes[i]->numbers == std::vector<uint64_t>{i});
}
