// More calls than there is room for: who waits, who is told, and that nothing is stuck.
#include <catch2/catch.hpp>

#include <atomic>
#include <latch>
#include <thread>

#include "actors/cluster/quiesce.h"
#include "actors/worker/worker.h"
#include "tests/support/error_of.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using namespace std::chrono_literals;

namespace {

struct Sink : Actor {
  void holds() {
    started->count_down();
    go_on->wait();
  }
  int64_t takes(int64_t n, Tensor) {
    in_order &= n == next;
    next = n + 1;
    return n;
  }
  bool orderly(int64_t until) { return in_order && next == until; }
  Task<int64_t> waits(Tensor) {
    ++waiting;
    co_await opened.future();
    co_return 1;
  }
  void open() { opened.set(); }
  Task<int64_t> reads(Remote<int64_t> result) {
    try {
      co_return co_await result.to_here();
    } catch (const Error& e) {
      heard = e.what();
      throw;
    }
  }
  static inline std::string heard;
  int64_t begun() { return waiting; }
  /// Sends n messages and as many calls, without a pause.
  Task<int64_t> floods(RRef<Sink> other, int64_t n, int64_t size) {
    std::vector<Future<int64_t>> calls;
    for (int64_t i = 0; i < n; ++i) {
      if (i % 2)
        calls.push_back(other.call<&Sink::takes>(i, zeros({size})));
      else
        other.tell<&Sink::takes>(i, zeros({size}));
    }
    int64_t sum = 0;
    for (int64_t k : co_await all(calls)) sum += k;
    co_return sum;
  }
  /// The same with calls whose results stay.
  Task<int64_t> floods_kept(RRef<Sink> other, int64_t n, int64_t size) {
    std::vector<Remote<int64_t>> results;
    for (int64_t i = 0; i < n; ++i) {
      if (i % 2)
        results.push_back(other.remote<&Sink::takes>(i, zeros({size})));
      else
        other.tell<&Sink::takes>(i, zeros({size}));
    }
    int64_t sum = 0;
    for (const auto& r : results) sum += co_await r.to_here();
    co_return sum;
  }
  Task<int64_t> nested(RRef<Sink> other, RRef<Sink> me, int64_t depth, Tensor t) {
    if (depth == 0) co_return 0;
    co_return co_await other.call<&Sink::nested>(me, other, depth - 1, t) + 1;
  }
  static inline std::latch *started = nullptr, *go_on = nullptr;
  Promise<void> opened;
  int64_t next = 0, waiting = 0;
  bool in_order = true;
  static constexpr auto remote =
      methods<&Sink::holds, &Sink::takes, &Sink::orderly, &Sink::waits, &Sink::open, &Sink::begun,
              &Sink::floods, &Sink::floods_kept, &Sink::nested, &Sink::reads>;
};

std::atomic<int64_t> counted = 0;

/// An actor that nobody keeps.
struct Counted : Actor {
  void counts() { ++counted; }
  int64_t answers(int64_t n) {
    ++counted;
    return n;
  }
  static constexpr auto remote = methods<&Counted::counts, &Counted::answers>;
};

struct Source : Actor {
  /// Sends an actor n messages and as many calls, and lets it go.
  Task<int64_t> pours(std::string where, int64_t n) {
    auto to = here().spawn<Counted>(where);
    std::vector<Future<int64_t>> answers;
    for (int64_t i = 0; i < n; ++i) {
      to.tell<&Counted::counts>();
      answers.push_back(to.call<&Counted::answers>(i));
    }
    to = {};
    int64_t sum = 0;
    for (const int64_t i : co_await all(answers)) sum += i;
    co_return sum;
  }
  /// Messages alone, of which nobody hears.
  void leaves(std::string where, int64_t n) {
    const auto to = here().spawn<Counted>(where);
    for (int64_t i = 0; i < n; ++i) to.tell<&Counted::counts>();
  }
  /// Asks for results that stay, and for the making of actors, behind calls that wait for room.
  Task<int64_t> asks(std::string where, int64_t n) {
    auto to = here().spawn<Counted>(where);
    std::vector<Future<int64_t>> answers;
    std::vector<Future<void>> made;
    for (int64_t i = 0; i < n; ++i) {
      answers.push_back(to.remote<&Counted::answers>(i).to_here());
      made.push_back(here().spawn<Counted>(where).ready());
    }
    to = {};
    int64_t sum = 0;
    for (const int64_t i : co_await all(answers)) sum += i;
    for (const auto& m : made) co_await m;
    co_return sum;
  }
  static constexpr auto remote = methods<&Source::pours, &Source::leaves, &Source::asks>;
};

constexpr int64_t kElements = 1000;  // 4000 bytes and a header
constexpr size_t kMessage = 4000 + 400;

void nothing_in_flight(Cluster& cluster) {
  for (const auto& name : cluster.workers())
    for (const char* what : {"in_flight_calls", "in_flight_bytes", "unanswered_calls"})
      while (cluster.metrics(name)[what] != 0) std::this_thread::yield();
}

}  // namespace

TEST_CASE("a flood waits at its caller, which keeps what is on its way within the limit", "[calls]") {
  constexpr size_t kLimit = 40'000;
  constexpr int64_t kCalls = 200;
  auto cluster = Cluster::in_process(2, hosting<Sink>(), {.threads = 2, .limits = {.bytes = kLimit}});
  for (const char* where : {"w1", "w0"}) {
    INFO(where);
    std::latch started(1), go_on(1);
    Sink::started = &started, Sink::go_on = &go_on;
    auto sink = cluster->spawn<Sink>(where);
    const auto holds = sink.call<&Sink::holds>();
    started.wait();
    std::atomic<int64_t> made = 0;
    std::vector<Future<int64_t>> answers;
    std::thread flood([&] {
      for (int64_t i = 0; i < kCalls; ++i, ++made)
        answers.push_back(sink.call<&Sink::takes>(i, zeros({kElements})));
    });
    const auto in_flight = [&] { return cluster->worker().metrics()["in_flight_bytes"]; };
    while (in_flight() < static_cast<int64_t>(kLimit)) std::this_thread::yield();
    // The thread stands still now, or will: no more than the limit and one message leave, whatever time
    // passes.
    for (int i = 0; i < 1000; ++i) {
      std::this_thread::yield();
      CHECK(in_flight() < static_cast<int64_t>(kLimit + kMessage));
      CHECK(made <= static_cast<int64_t>(kLimit / 4000 + 1));
    }
    // Who does not want to wait is told, with figures.
    const Error e =
        error_of([&] { sink.when_full(OnFull::fail).call<&Sink::takes>(0, zeros({kElements})).get(); });
    CHECK(e.kind() == ErrorKind::overloaded);
    CHECK_THAT(e.what(), Catch::Contains(std::string("worker ") + where) && Catch::Contains("40000 bytes"));
    CHECK(cluster->metrics("w1")["actors"] >= 0);  // questions to the worker are exempt
    go_on.count_down();
    flood.join();
    for (int64_t i = 0; i < kCalls; ++i) CHECK(answers[static_cast<size_t>(i)].get() == i);
    CHECK(sink.call<&Sink::orderly>(kCalls).get());
  }
  nothing_in_flight(*cluster);
}

TEST_CASE("an actor that floods another is not held up, and its calls leave in order when there is room",
          "[calls]") {
  auto cluster =
      Cluster::in_process(3, hosting<Sink>(), {.threads = 2, .limits = {.bytes = 10'000, .messages = 3}});
  for (auto [from, to] : {std::pair("w1", "w2"), std::pair("w1", "w1"), std::pair("w0", "w1")}) {
    auto source = cluster->spawn<Sink>(from), sink = cluster->spawn<Sink>(to);
    CHECK(source.call<&Sink::floods>(sink, 500, kElements).get() == 250 * 250);
    CHECK(sink.call<&Sink::orderly>(500).get());
    auto other = cluster->spawn<Sink>(to);
    CHECK(source.call<&Sink::floods_kept>(other, 500, kElements).get() == 250 * 250);
    CHECK(other.call<&Sink::orderly>(500).get());
  }
  nothing_in_flight(*cluster);
}

TEST_CASE("workers that flood each other, with calls inside calls, all come to an end", "[calls]") {
  auto cluster =
      Cluster::in_process(2, hosting<Sink>(), {.threads = 2, .limits = {.bytes = 5'000, .messages = 1}});
  auto a = cluster->spawn<Sink>("w0"), b = cluster->spawn<Sink>("w1"), c = cluster->spawn<Sink>("w0"),
       d = cluster->spawn<Sink>("w1");
  std::vector<Future<int64_t>> nested;
  const auto ab = c.call<&Sink::floods>(b, 300, kElements), ba = d.call<&Sink::floods>(a, 300, kElements);
  for (int i = 0; i < 64; ++i)
    nested.push_back(
        (i % 2 ? a : b).call<&Sink::nested>(i % 2 ? b : a, i % 2 ? a : b, 8, zeros({kElements})));
  for (auto& n : nested) CHECK(n.get() == 8);
  CHECK(ab.get() == 150 * 150);
  CHECK(ba.get() == 150 * 150);
  nothing_in_flight(*cluster);
}

TEST_CASE("calls that wait for room end with their deadline, their caller's wish, and their worker",
          "[calls]") {
  SimulatedCluster cluster(1, 3, hosting<Sink>(), {.limits = {.bytes = 6'000}});
  cluster.network().set_faults({.delay = 1ms});
  auto sink = cluster.here(0).spawn<Sink>(1), other = cluster.here(0).spawn<Sink>(2);
  cluster.settle();
  const auto metrics = [&](const char* what) { return cluster.worker(0).metrics()[what]; };
  auto call = [&](Duration timeout) {
    return sink.with_timeout(timeout).call<&Sink::waits>(zeros({kElements}));
  };
  auto first = call(0s), second = call(0s);  // 8000 bytes: the room is taken until they have begun
  CHECK(metrics("in_flight_calls") == 2);
  auto late = call(500us), unwanted = call(0s), wanted = call(0s);
  CHECK(metrics("in_flight_calls") == 2);
  CHECK(metrics("pending_calls") == 5);
  unwanted.cancel();
  CHECK(cluster.await(late).error().kind() == ErrorKind::deadline);
  CHECK(cluster.await(other.call<&Sink::begun>()).value() == 0);  // another worker has its own room
  cluster.settle();
  CHECK(cluster.await(sink.call<&Sink::begun>()).value() == 3);
  CHECK(metrics("in_flight_bytes") == 0);
  // The worker goes: those on their way and those that wait for room end alike.
  std::vector<Future<int64_t>> more;
  for (int i = 0; i < 10; ++i) more.push_back(call(0s));
  cluster.network().crash("w1");
  for (auto& m : more) {
    const auto r = cluster.await(m);
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().kind() == ErrorKind::disconnected);
    CHECK(r.error().worker() == "w1");
  }
  for (const char* what : {"in_flight_bytes", "in_flight_calls", "pending_calls"}) CHECK(metrics(what) == 0);
}

TEST_CASE("calls that wait for room keep their actor, though its last reference goes", "[calls]") {
  constexpr int64_t kCalls = 100;
  auto cluster =
      Cluster::in_process(3, hosting<Source, Counted>(), {.threads = 2, .limits = {.messages = 10}});
  for (auto [from, to] : {std::pair("w1", "w2"), std::pair("w1", "w1"), std::pair("w0", "w1")}) {
    INFO(from << " to " << to);
    auto source = cluster->spawn<Source>(from);
    counted = 0;
    CHECK(source.call<&Source::pours>(to, kCalls).get() == kCalls * (kCalls - 1) / 2);
    CHECK(counted == 2 * kCalls);
    CHECK(source.call<&Source::asks>(to, kCalls).get() == kCalls * (kCalls - 1) / 2);
    counted = 0;
    source.call<&Source::leaves>(to, kCalls).get();
    CHECK_FALSE(internal::actors::quiesce(cluster->worker(), TimePoint::max()));
    CHECK(counted == kCalls);
  }
  nothing_in_flight(*cluster);
  while (cluster->metrics("w1")["actors"] > 2) std::this_thread::yield();  // its own two sources
}

TEST_CASE("calls whose results stay wait in line for room, and their results are known meanwhile",
          "[calls]") {
  enum { read, shared, dropped, lost, interrupted };
  for (const int what : {read, shared, dropped, lost, interrupted}) {
    INFO(what);
    SimulatedCluster cluster(1, 3, hosting<Sink, Counted>(), {.limits = {.bytes = 6'000}});
    cluster.network().set_faults({.delay = 1ms});
    auto sink = cluster.here(0).spawn<Sink>(1), other = cluster.here(0).spawn<Sink>(2);
    cluster.settle();
    for (int64_t i = 0; i < 4; ++i) sink.tell<&Sink::takes>(i, zeros({kElements}));
    auto result = sink.remote<&Sink::takes>(4, zeros({kElements}));
    CHECK(cluster.worker(0).metrics()["pending_calls"] == 5);
    // Later numbers, and who got the reference, are there before the call.
    auto made = cluster.here(0).spawn<Counted>(1);
    auto second = sink.remote<&Sink::takes>(5, zeros({kElements}));
    std::optional<Future<int64_t>> answer;
    if (what == shared || what == interrupted) answer = other.call<&Sink::reads>(result);
    if (what == dropped) result = {};
    if (what == lost) cluster.network().crash("w1");
    if (what == interrupted) {
      while (cluster.worker(1).metrics()["owned_values"] < 2) cluster.step();
      cluster.worker(0).interrupt("no more of it");
      cluster.settle();
      CHECK_FALSE(answer->peek()->ok());  // its own call, interrupted
      CHECK_THAT(Sink::heard, Catch::Contains("no more of it"));
      continue;
    }
    if (what != shared && what != dropped) answer = result.to_here();
    if (answer && what == lost)
      CHECK(cluster.await(*answer).error().kind() == ErrorKind::disconnected);
    else if (answer)
      CHECK(cluster.await(*answer).value() == 4);
    if (what != lost) {
      CHECK(cluster.await(second.to_here()).value() == 5);
      CHECK(cluster.await(sink.call<&Sink::orderly>(6)).value());
      CHECK(cluster.await(made.ready()).ok());
    }
    result = second = {};
    answer.reset();
    cluster.settle();
    for (const WorkerId w : {0u, 1u, 2u})
      for (const char* left : {"owned_values", "pending_calls", "pending_references", "in_flight_calls"}) {
        INFO("w" << w << " " << left);
        if (w != 1 || what != lost) CHECK(cluster.worker(w).metrics()[left] == 0);
      }
  }
}
