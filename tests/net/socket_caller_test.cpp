// Callers that wait read the connection themselves: awake or asleep, whoever else is there, until what they
// wait for has come, the time is over, or the peer is gone.
#include <atomic>
#include <latch>
#include <thread>

#include "core/async/future.h"
#include "core/base/thread.h"
#include "net/socket/connection/reactor.h"
#include "tests/net/socket_support.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using namespace std::chrono_literals;

namespace {

// Two transports of this process, whose messages go through sockets and rings as if they were two. The server
// answers each message with the same number.
struct Link {
  explicit Link(Duration polling = 0ns, bool callers_read = true,
                const std::string& address = fresh_address()) {
    SocketLimits limits;
    limits.polling = polling;
    limits.callers_read = callers_read;
    to.handler = [this](Connection& c, Message& m) {
      if (answers) c.send(message(m.header[0]));
    };
    from.handler = [this](Connection&, Message& m) {
      const uint64_t number = m.header[0];
      deliverer[number % deliverer.size()] = std::this_thread::get_id();
      waiting[number % waiting.size()].set(number);
    };
    server = transport(to, "w2", limits);
    client = make_socket_transport({{1, "w1"}, kToken, limits, processes_here}, from);
    listener = server->listen(address);
    connection = client->connect(listener->address()).get();
    // Rings are agreed upon by the time that a few answers have come.
    for (uint64_t i = 0; i < 20; ++i) ask(i).get();
  }
  Future<uint64_t> ask(uint64_t number) {
    auto& promise = waiting[number % waiting.size()];
    promise = {};
    auto answer = promise.future();
    connection->send(message(number));
    return answer;
  }
  std::atomic<bool> answers{true};
  std::array<Promise<uint64_t>, 64> waiting;
  std::array<std::thread::id, 64> deliverer;
  const std::shared_ptr<std::atomic<int>> processes_here =
      std::make_shared<std::atomic<int>>(1);  // the client's
  Recorder to, from;
  std::unique_ptr<Transport> server, client;
  std::unique_ptr<Listener> listener;
  std::shared_ptr<Connection> connection;
};

const std::string kTcp = "tcp:127.0.0.1:0";  // no ring

// Of 500 answers, how many the caller read itself.
int read_here(Link& link) {
  int itself = 0;
  for (uint64_t i = 0; i < 500; ++i) {
    CHECK(link.ask(i).get() == i);
    itself += link.deliverer[i % 64] == std::this_thread::get_id();
  }
  return itself;
}

}  // namespace

TEST_CASE("a caller that waits gets its answer itself: from a ring, awake or asleep, or a socket, awake") {
  Link asleep, awake(100us), socket(100ms, true, kTcp);
  CHECK(read_here(asleep) > 0);
  CHECK(read_here(awake) > 0);
  CHECK(read_here(socket) > 0);
}

TEST_CASE("a caller leaves reading to the transport's thread if it is told to") {
  Link ring(100us, false), socket(100us, false, kTcp);
  CHECK(read_here(ring) == 0);
  CHECK(read_here(socket) == 0);
}

TEST_CASE("callers poll, too, while the processes of this host are more than its cores") {
  for (const int processes : {usable_cores() + 1, usable_cores()}) {
    Link socket(100ms, true, kTcp);  // a caller reads a socket only while it polls
    socket.processes_here->store(processes);
    int itself = 0;  // a caller that lost its core does not poll for up to 200 ms, some thousand answers
    for (int i = 0; i < 200 && itself == 0; ++i) itself = read_here(socket);
    CHECK(itself > 0);
  }
}

TEST_CASE("who polls gives way where processes are more than cores, and stops for who takes its core") {
  for (const bool crowded : {false, true}) {
    Recorder events;
    SocketOptions options;
    options.processes_here = std::make_shared<std::atomic<int>>(usable_cores() + crowded);
    options.token = "sixteen bytes or more";
    const auto core = std::make_shared<Reactor>(options, events);
    const TimePoint before = core->now(), after = before + 1ms;
    CHECK(core->yields() == crowded);
    CHECK(core->may_poll(after));
    CHECK_FALSE(core->was_away(before, before + 1us));
    CHECK(core->was_away(before, after));
    CHECK_FALSE(core->may_poll(after));
    CHECK(core->may_poll(after + 5ms) == !crowded);  // a yield costs more
    CHECK(core->may_poll(after + 1s));
    core->shut_down();
  }
}

TEST_CASE("a caller that reads wakes for what comes by other ways, and leaves reading to others after it") {
  const bool ring = GENERATE(true, false);
  Link link(ring ? Duration(0) : Duration(100ms), true, ring ? fresh_address() : kTcp);
  link.answers = false;
  const auto unanswered = link.ask(1);
  CHECK_FALSE(unanswered.wait_for(2ms));
  Promise<int> elsewhere;
  std::thread sets([&] { elsewhere.set(5); });
  CHECK(elsewhere.future().get() == 5);
  sets.join();
  // And messages that come while nobody waits are delivered.
  link.answers = true;
  link.connection->send(message(77));
  link.from.wait([&] { return link.from.messages.back().header[0] == 77; });
}

TEST_CASE("callers that read are told when the peer has gone") {
  const bool ring = GENERATE(true, false);
  Link link(ring ? Duration(0) : Duration(100ms), true, ring ? fresh_address() : kTcp);
  link.answers = false;
  std::atomic<int> told{0};
  std::latch sent(3);
  std::vector<std::thread> callers;
  Promise<int> closed;
  for (int i = 0; i < 3; ++i)
    callers.emplace_back([&] {
      link.connection->send(message(4));
      sent.count_down();
      told += closed.future().get();
    });
  std::thread watch([&] {
    link.from.wait_closed(1);
    closed.set(1);
  });
  sent.wait();
  link.server.reset();
  watch.join();
  for (auto& c : callers) c.join();
  CHECK(told == 3);
}

TEST_CASE("callers of several threads all get their answers, whoever reads") {
  for (const auto& [polling, address] :
       {std::pair(Duration(0), fresh_address()), {100us, fresh_address()}, {100us, kTcp}}) {
    Link link(polling, true, address);
    std::vector<std::thread> callers;
    std::atomic<uint64_t> right{0};
    for (uint64_t t = 0; t < 4; ++t)
      callers.emplace_back([&, t] {
        for (uint64_t i = 0; i < 2000; ++i) {
          const uint64_t number = i * 16 + t * 4;  // four slots each
          right += link.ask(number).get() == number;
          if (i % 300 == 0) std::this_thread::yield();
        }
      });
    for (auto& c : callers) c.join();
    CHECK(right == 8000);
  }
}

TEST_CASE("a flag that is set wakes all who sleep on it") {
  for (int round = 0; round < 200; ++round) {
    Ready ready;
    std::atomic<uint32_t> word{7};
    int data = 0, seen[3] = {};
    std::vector<std::thread> threads;
    for (int& s : seen)
      threads.emplace_back([&] {
        if (&s == seen)
          while (!ready.is_set() && ready.wait_with(word, 7, TimePoint::max())) continue;
        if (ready.wait_until(TimePoint::max())) s = data;
      });
    data = round + 1;
    ready.set();
    for (auto& t : threads) t.join();
    for (const int s : seen) CHECK(s == round + 1);
  }
  Ready never;
  CHECK_FALSE(never.wait_until(Clock::system().now() + 1ms));
  CHECK_FALSE(never.wait_until(TimePoint{}));
}
