// The network in memory: immediate mode beyond the contract, the virtual clock, lifetimes.
#include <atomic>
#include <cstring>
#include <thread>

#include "core/base/call_frame.h"
#include "core/base/log.h"
#include "core/graph/node.h"
#include "tests/net/sim_support.h"
#include "tests/support/stands_for.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace std::chrono_literals;

TEST_CASE("in immediate mode a message has arrived when send returns", "[sim]") {
  Network network;
  SimNode a(network, "a"), b(network, "b");
  auto connecting = a.transport->connect("sim:b");
  REQUIRE(connecting.is_ready());
  REQUIRE(b.accepted.size() == 1);
  connecting.get()->send(numbered(1));
  REQUIRE(b.numbers == std::vector<uint64_t>{1});
  REQUIRE(connecting.get()->queued_bytes() == 0);
  connecting.get()->close("done");
  REQUIRE(a.closed.size() == 1);
  REQUIRE(b.closed.size() == 1);
}

TEST_CASE("a delivery inside a delivery waits for its turn", "[sim]") {
  Network network;
  SimNode a(network, "a"), b(network, "b");
  auto there = a.transport->connect("sim:b").get();
  int depth = 0, deepest = 0;
  const auto answer = [&](Connection& c, Message& m) {
    deepest = std::max(deepest, ++depth);
    if (m.header[0] < 100000) c.send(numbered(m.header[0] + 1));
    --depth;
  };
  a.on_each = b.on_each = answer;
  there->send(numbered(0));
  REQUIRE(deepest == 1);
  REQUIRE(a.numbers.size() + b.numbers.size() == 100001);
}

TEST_CASE("a node may connect inside a callback, and to itself", "[sim]") {
  Network network;
  SimNode a(network, "a"), b(network, "b"), c(network, "c");
  std::vector<std::string> order;
  b.on_each = [&](Connection&, Message&) {
    b.transport->connect("sim:c").on_ready([&](const Result<std::shared_ptr<Connection>>& to_c) {
      order.push_back("connected");
      to_c.value()->send(numbered(9));
    });
    order.push_back("asked");
  };
  a.transport->connect("sim:b").get()->send(numbered(1));
  REQUIRE(order == std::vector<std::string>{"asked", "connected"});
  REQUIRE(c.numbers == std::vector<uint64_t>{9});
  auto self = a.transport->connect("sim:a").get();
  self->send(numbered(5));
  REQUIRE(a.numbers == std::vector<uint64_t>{5});
  self->close("enough");
  REQUIRE(a.closed.size() == 2);
}

TEST_CASE("tensors cross as if between processes: the bytes are copied", "[sim]") {
  Network network;
  SimNode a(network, "a"), b(network, "b");
  Message got;
  b.on_each = [&](Connection&, Message& m) { got = std::move(m); };
  auto there = a.transport->connect("sim:b").get();
  Buffer whole{Storage::allocate(100), 0, 100};
  std::memset(whole.data(), 7, 100);
  Message m;
  m.header = {1};
  m.buffers = {{whole.storage, 10, 20}, {nullptr, 0, 0}};
  there->send(m);
  std::memset(whole.data(), 8, 100);
  REQUIRE(got.buffers.size() == 2);
  REQUIRE(got.buffers[0].storage->size() == 20);
  REQUIRE(got.buffers[0].data()[19] == std::byte{7});
  REQUIRE(got.buffers[1].size == 0);
  REQUIRE(got.buffers[1].storage);
}

TEST_CASE("a receiver does not run in its sender's frame or grad mode", "[sim]") {
  Network network;
  SimNode a(network, "a"), b(network, "b");
  auto there = a.transport->connect("sim:b").get();
  CallFrame at_b;
  bool records = false;
  b.on_each = [&](Connection&, Message&) { at_b = frame(), records = grad_enabled(); };
  auto* const worker = testing::stands_for<internal::actors::Worker>();
  CallFrameScope scope(CallFrame{worker, testing::stands_for<internal::actors::ActorCell>(), nullptr, 7});
  NoGradGuard no_grad;
  there->send(numbered(1));
  REQUIRE((at_b.worker == nullptr && at_b.actor == nullptr && at_b.context == 0 && records));
  REQUIRE((frame().worker == worker && !grad_enabled()));
}

TEST_CASE("threads that connect, send and leave at once leave nothing undone", "[sim]") {
  struct Counting : Events {
    std::atomic<int> accepted{0}, closed{0};
    void on_accepted(std::shared_ptr<Connection>) override { ++accepted; }
    void on_message(Connection& c, Message m) override {
      if (m.header[0]-- == 0) return;
      try {
        c.send(std::move(m));
      } catch (const Error&) {  // the other side has left
      }
    }
    void on_closed(Connection&, const Error&) override { ++closed; }
  };
  Network network;
  Counting hub_events;
  auto hub = network.make_transport("hub", sim_options("hub"), hub_events);
  std::unique_ptr<Listener> listener;
  std::atomic<int> connected{0}, failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 100; ++round) {
        Counting events;
        const std::string name = "n" + std::to_string(t);
        auto transport = network.make_transport(name, sim_options(name), events);
        auto connecting = transport->connect("sim:hub", round % 2 == 0);  // at first nobody listens there
        if (const auto* result = connecting.peek(); result && result->ok())
          result->value()->send(numbered(3, 10));
        transport.reset();
        // Whatever came of it, it has come by now.
        ++(connecting.is_ready() && connecting.peek()->ok() ? connected : failed);
        if (!connecting.is_ready() || events.accepted != 0) connected = -1000000;
      }
    });
  listener = hub->listen("sim:hub");
  for (auto& t : threads) t.join();
  listener.reset();
  hub.reset();
  REQUIRE(connected + failed == 400);
  REQUIRE(hub_events.accepted == hub_events.closed);
  REQUIRE(hub_events.accepted >= connected);
}

TEST_CASE("a handler that throws closes its connection and says so", "[sim]") {
  Network network;
  SimNode a(network, "a"), b(network, "b");
  b.on_each = [](Connection&, Message&) { throw std::runtime_error("broken handler"); };
  auto there = a.transport->connect("sim:b").get();
  internal::log::set_level(internal::log::Level::off);
  there->send(numbered(1));
  internal::log::set_level(internal::log::Level::warning);
  REQUIRE(a.closed.size() == 1);
  REQUIRE(b.closed.size() == 1);
  REQUIRE(a.closed[0].find("broken handler") != std::string::npos);
  REQUIRE(kind_thrown([&] { there->send(numbered(2)); }) == ErrorKind::disconnected);
}

TEST_CASE("misuse of the network is invalid", "[sim]") {
  Network real, simulated(1, true);
  SimNode a(real, "a"), b(simulated, "b");
  REQUIRE(kind_thrown([&] { real.step(); }) == ErrorKind::invalid);
  REQUIRE(kind_thrown([&] { real.run(); }) == ErrorKind::invalid);
  REQUIRE(kind_thrown([&] { real.schedule(1s, [] {}); }) == ErrorKind::invalid);
  REQUIRE(kind_thrown([&] { real.set_faults({.delay = 1ms}); }) == ErrorKind::invalid);
  REQUIRE(kind_thrown([&] { real.crash("nobody"); }) == ErrorKind::invalid);
  REQUIRE(kind_thrown([&] { real.silence("nobody"); }) == ErrorKind::invalid);
  REQUIRE(kind_thrown([&] { simulated.set_faults({.drop = 1.5}); }) == ErrorKind::invalid);
  REQUIRE(kind_thrown([&] { simulated.set_faults({.delay = -1ms}); }) == ErrorKind::invalid);
  REQUIRE(kind_thrown([&] { SimNode twice(real, "a"); }) == ErrorKind::invalid);
  REQUIRE(kind_thrown([&] { a.transport->listen("sim:a"); }) == ErrorKind::failed);
  TransportOptions short_token = sim_options("c");
  short_token.token = "short";
  REQUIRE(kind_thrown([&] { real.make_transport("c", short_token, a); }) == ErrorKind::invalid);
  REQUIRE(kind_thrown([&] { real.make_transport("", sim_options("c"), a); }) == ErrorKind::invalid);
  REQUIRE(kind_thrown([&] { real.make_transport(std::string(256, 'n'), sim_options("c"), a); }) ==
          ErrorKind::invalid);
}

TEST_CASE("crash and partition end connections at once in immediate mode", "[sim]") {
  Network network;
  SimNode a(network, "a"), b(network, "b"), c(network, "c");
  auto ab = a.transport->connect("sim:b").get(), ac = a.transport->connect("sim:c").get();
  network.partition("b", "a");
  REQUIRE((a.closed.size() == 1 && b.closed.size() == 1 && c.closed.empty()));
  REQUIRE(kind_of(a.transport->connect("sim:b")) == ErrorKind::disconnected);
  auto waiting = a.transport->connect("sim:b", true);
  REQUIRE_FALSE(waiting.is_ready());
  network.heal("a", "b");
  REQUIRE(waiting.is_ready());
  waiting.get()->send(numbered(1));
  REQUIRE(b.numbers.size() == 1);
  network.crash("a");
  REQUIRE((b.closed.size() == 2 && c.closed.size() == 1 && a.closed.size() == 1));  // a itself hears nothing
  REQUIRE(kind_thrown([&] { ac->send(numbered(1)); }) == ErrorKind::disconnected);
  REQUIRE(kind_of(a.transport->connect("sim:b")) == ErrorKind::disconnected);
  SimNode again(network, "a");  // the name is free for a restarted node
  REQUIRE(again.transport->connect("sim:b").is_ready());
}

TEST_CASE("a silent node sends nothing and hears nothing, and others hear of it when it crashes", "[sim]") {
  const bool virtual_time = GENERATE(false, true);
  CAPTURE(virtual_time);
  Network network(1, virtual_time);
  const auto settle = [&] {
    while (virtual_time && network.step()) {
    }
  };
  SimNode a(network, "a"), b(network, "b");
  auto connecting = a.transport->connect("sim:b");
  settle();
  auto there = connecting.get();
  network.silence("a");
  there->send(numbered(1));
  for (auto& back : b.accepted) back->send(numbered(2));
  there->close("it ends");
  settle();
  CHECK((b.numbers.empty() && b.closed.empty() && a.numbers.empty() && a.closed.empty()));
  auto another = a.transport->connect("sim:b"), to_it = b.transport->connect("sim:a");
  settle();
  CHECK(kind_of(another) == ErrorKind::disconnected);
  CHECK(kind_of(to_it) == ErrorKind::disconnected);
  CHECK(b.accepted.size() == 1);
  network.crash("a");
  settle();
  CHECK((b.closed.size() == 1 && a.closed.empty()));
  CHECK(b.closed[0].find("it has crashed") != std::string::npos);
}

TEST_CASE("a node may crash inside its own callback", "[sim]") {
  Network network;
  SimNode a(network, "a"), b(network, "b");
  b.on_each = [&](Connection&, Message& m) {
    if (m.header[0] == 1) network.crash("b");
  };
  auto there = a.transport->connect("sim:b").get();
  for (uint64_t i = 0; i < 2; ++i) there->send(numbered(i));
  REQUIRE(b.numbers == std::vector<uint64_t>{0, 1});
  REQUIRE(b.closed.empty());
  REQUIRE(a.closed.size() == 1);
}

TEST_CASE("network, transports and connections may go in any order", "[sim]") {
  struct Quiet : Events {
    int closed = 0;
    void on_accepted(std::shared_ptr<Connection>) override {}
    void on_message(Connection&, Message) override {}
    void on_closed(Connection&, const Error&) override { ++closed; }
  };
  const std::vector<std::string> orders = {"nab", "nba", "anb", "bna", "abn", "ban"};
  for (bool virtual_time : {false, true})
    for (bool established : {false, true})
      for (const auto& order : orders) {
        INFO(order << (virtual_time ? " virtual" : " immediate") << (established ? " established" : ""));
        Quiet at_a, at_b;
        auto network = std::make_unique<Network>(3, virtual_time);
        auto a = network->make_transport("a", sim_options("a"), at_a);
        auto b = network->make_transport("b", sim_options("b"), at_b);
        auto listener = b->listen("sim:b");
        auto connecting = a->connect("sim:b");
        if (virtual_time && established) network->run(1s);
        std::shared_ptr<Connection> connection;
        if (connecting.is_ready()) connection = connecting.get();
        if (connection) connection->send(numbered(1, 100));  // in virtual time, on its way for ever
        auto never = a->connect("sim:nobody", true);
        for (char c : order) {
          if (c == 'n') network.reset();
          if (c == 'a') a.reset();
          if (c == 'b') b.reset();
        }
        if (connection) {
          REQUIRE(at_a.closed == 1);
          REQUIRE(kind_thrown([&] { connection->send(numbered(2)); }) == ErrorKind::disconnected);
        }
        REQUIRE(kind_of(never) == ErrorKind::disconnected);
      }
}
