// What every transport does, as tests. Its test file derives a Backend and calls keeps_the_contract().
#pragma once
#include <catch2/catch.hpp>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/contract/transport_support.h"

namespace troupe::internal::net::contract {

#define TROUPE_REQUIRE_CLEAN(side) REQUIRE((side).events.violations() == std::vector<std::string>{})

// ---- the behaviours

inline void delivers_in_order_both_ways(Backend& backend) {
  Side a(backend, "a", 1), b(backend, "b", 2, true);
  auto there = a.connect(b.address);
  auto back = b.events.accepted();
  REQUIRE(back);
  const std::vector<std::vector<size_t>> shapes = {{},           {0},     {1}, {7, 8, 9}, {64},
                                                   {4096, 0, 1}, {65537}, {},  {1 << 20}, {0, 0, 0}};
  const uint64_t count = 300;
  std::thread other([&] {
    for (uint64_t i = 0; i < count; ++i) back->send(make_message(2, i, shapes[(i + 5) % shapes.size()]));
    back->send(make_message(2, count, {(5 << 20) + 3}));
  });
  for (uint64_t i = 0; i < count; ++i) there->send(make_message(1, i, shapes[i % shapes.size()]));
  there->send(make_message(1, count, {(3 << 20) + 1, 0, 5}));
  other.join();
  REQUIRE(b.events.wait_messages(count + 1));
  REQUIRE(a.events.wait_messages(count + 1));
  for (auto [events, connection] : {std::pair{&a.events, there}, std::pair{&b.events, back}}) {
    const auto got = events->received(*connection);
    REQUIRE(got.size() == count + 1);
    for (uint64_t i = 0; i <= count; ++i) REQUIRE(got[i].number == i);
  }
  TROUPE_REQUIRE_CLEAN(a);
  TROUPE_REQUIRE_CLEAN(b);
}

inline void keeps_each_senders_order(Backend& backend) {
  Side a(backend, "a"), b(backend, "b", 2, true);
  auto there = a.connect(b.address);
  const uint64_t senders = 4, each = 250;
  std::vector<std::thread> threads;
  for (uint64_t s = 0; s < senders; ++s)
    threads.emplace_back([&, s] {
      for (uint64_t i = 0; i < each; ++i) there->send(make_message(s, i, {i * 13 % 3000, s}));
    });
  for (auto& t : threads) t.join();
  REQUIRE(b.events.wait_messages(senders * each));
  std::map<uint64_t, uint64_t> next;
  for (auto id : b.events.received(*b.events.accepted())) REQUIRE(id.number == next[id.sender]++);
  TROUPE_REQUIRE_CLEAN(b);
}

inline void handlers_answer_each_other(Backend& backend) {
  Side a(backend, "a"), b(backend, "b", 2, true);
  const uint64_t rounds = 3000;
  const auto answer = [&](Connection& c, Message& m) {
    if (m.header[1] < rounds) c.send(make_message(m.header[0], m.header[1] + 1));
  };
  a.events.on_each = b.events.on_each = answer;
  auto there = a.connect(b.address);
  there->send(make_message(0, 0));
  REQUIRE(b.events.wait_messages(rounds / 2 + 1));
  REQUIRE(a.events.wait_messages(rounds / 2));
  TROUPE_REQUIRE_CLEAN(a);
  TROUPE_REQUIRE_CLEAN(b);
}

inline void close_is_seen_once_by_both(Backend& backend) {
  Side a(backend, "a", 1), b(backend, "b", 2, true);
  auto there = a.connect(b.address);
  auto back = b.events.accepted();
  REQUIRE(back);
  const uint64_t count = 50;
  for (uint64_t i = 0; i < count; ++i) there->send(make_message(1, i, {10}));
  there->close("enough");
  there->close("again");
  REQUIRE(a.events.wait_closed());
  REQUIRE(b.events.wait_closed());
  REQUIRE(b.events.received(*back).size() == count);  // what was queued was sent
  for (auto& c : {there, back}) {
    REQUIRE(kind_of_failure([&] { c->send(make_message(0, 0)); }) == ErrorKind::disconnected);
    REQUIRE(failure_of(c->writable()) == ErrorKind::disconnected);
    c->close("once more");
  }
  try {
    there->send(make_message(0, 0));
  } catch (const Error& e) {
    REQUIRE(e.worker() == "b");
  }
  a.destroy();
  b.destroy();
  TROUPE_REQUIRE_CLEAN(a);
  TROUPE_REQUIRE_CLEAN(b);
}

inline void nobody_is_disconnected(Backend& backend) {
  Side a(backend, "a");
  REQUIRE(failure_of(a.transport->connect(backend.nowhere())) == ErrorKind::disconnected);
  REQUIRE(failure_of(a.transport->connect("nonsense")) == ErrorKind::invalid);
  REQUIRE(failure_of(a.transport->connect("")) == ErrorKind::invalid);
  auto impatient = options_for("c");
  impatient.limits.connect = std::chrono::milliseconds(50);
  Side c(backend, "c", impatient, false);
  REQUIRE(failure_of(c.transport->connect(backend.nowhere(), true)) == ErrorKind::disconnected);
}

inline void retry_waits_for_a_listener(Backend& backend) {
  auto patient = options_for("a");
  patient.limits.connect = std::chrono::seconds(120);
  Side a(backend, "a", patient, false);
  Side b(backend, "b");
  auto listener = b.transport->listen(backend.listen_address("b"));
  const std::string address = listener->address();
  listener.reset();
  auto future = a.transport->connect(address, true);
  listener = b.transport->listen(address);
  REQUIRE(future.wait_for(kHang));
  future.get()->send(make_message(1, 1));
  REQUIRE(b.events.wait_messages(1));
}

inline void a_wrong_token_is_refused(Backend& backend) {
  Side b(backend, "b", 2, true);
  auto options = options_for("stranger");
  options.token = "another token, as long";
  Side stranger(backend, "stranger", options, false);
  REQUIRE(failure_of(stranger.transport->connect(b.address)) == ErrorKind::invalid);
  REQUIRE(b.events.accepted_count() == 0);
  Side a(backend, "a");
  a.connect(b.address)->send(make_message(1, 1));
  REQUIRE(b.events.wait_messages(1));
  TROUPE_REQUIRE_CLEAN(b);
}

inline void both_know_each_other(Backend& backend) {
  Side a(backend, "a"), b(backend, "b", 7, true);
  auto first = a.connect(b.address);
  REQUIRE(first->peer().id == 7);
  REQUIRE(first->peer().name == "b");
  REQUIRE(b.events.accepted(0)->peer().id == kNoWorker);
  REQUIRE(b.events.accepted(0)->peer().name == "a");
  a.transport->set_self({41, std::string(255, 'n')});
  auto second = a.connect(b.address);
  REQUIRE(b.events.accepted(1)->peer().id == 41);
  REQUIRE(b.events.accepted(1)->peer().name == std::string(255, 'n'));
  REQUIRE(b.events.accepted(0)->peer().id == kNoWorker);
  REQUIRE_FALSE(first->address().empty());
}

inline void too_large_is_invalid(Backend& backend) {
  auto options = options_for("a");
  options.limits.header_bytes = 1024;
  options.limits.buffer_bytes = 1000;
  options.limits.message_bytes = 2500;
  options.limits.buffers = 4;
  Side a(backend, "a", options, false), b(backend, "b", 2, true);
  auto there = a.connect(b.address);
  Message header;
  header.header.assign(129, 0);
  REQUIRE(kind_of_failure([&] { there->send(header); }) == ErrorKind::invalid);
  REQUIRE(kind_of_failure([&] { there->send(make_message(0, 0, {1001})); }) == ErrorKind::invalid);
  REQUIRE(kind_of_failure([&] { there->send(make_message(0, 0, {1000, 1000, 501})); }) == ErrorKind::invalid);
  REQUIRE(kind_of_failure([&] { there->send(make_message(0, 0, {0, 0, 0, 0, 0})); }) == ErrorKind::invalid);
  there->send(make_message(1, 1, {1000, 1000, 500, 0}));  // exactly all of it
  REQUIRE(b.events.wait_messages(1));
  REQUIRE(b.events.messages() == 1);
}

inline void connections_outlive_their_listener(Backend& backend) {
  Side a(backend, "a"), b(backend, "b", 2, true);
  auto there = a.connect(b.address);
  REQUIRE(b.events.accepted());
  b.listener.reset();
  there->send(make_message(1, 1, {100}));
  REQUIRE(b.events.wait_messages(1));
  REQUIRE(failure_of(a.transport->connect(b.address)) == ErrorKind::disconnected);
  b.events.accepted()->send(make_message(2, 1));
  REQUIRE(a.events.wait_messages(1));
}

inline void connections_are_independent(Backend& backend) {
  Side hub(backend, "hub", 0, true);
  const uint64_t spokes = 5, each = 100;
  std::vector<std::unique_ptr<Side>> sides;
  std::vector<std::shared_ptr<Connection>> connections;
  for (uint64_t i = 0; i < spokes; ++i) {
    sides.push_back(std::make_unique<Side>(backend, "spoke" + std::to_string(i), static_cast<WorkerId>(i)));
    connections.push_back(sides.back()->connect(hub.address));
    connections.push_back(sides.back()->connect(hub.address));  // two of the same pair are two connections
  }
  hub.events.on_each = [](Connection& c, Message& m) { c.send(make_message(m.header[0], m.header[1])); };
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < connections.size(); ++i)
    threads.emplace_back([&, i] {
      for (uint64_t n = 0; n < each; ++n) connections[i]->send(make_message(i, n, {n}));
    });
  for (auto& t : threads) t.join();
  connections[0]->close("only this one");
  for (uint64_t i = 1; i < spokes; ++i) {
    REQUIRE(sides[i]->events.wait_messages(2 * each));
    for (uint64_t k : {2 * i, 2 * i + 1}) {
      const auto got = sides[i]->events.received(*connections[k]);
      REQUIRE(got.size() == each);
      for (uint64_t n = 0; n < each; ++n) REQUIRE((got[n].sender == k && got[n].number == n));
    }
    TROUPE_REQUIRE_CLEAN(*sides[i]);
  }
  REQUIRE(sides[0]->events.wait_closed());
  for (uint64_t i = 0; i < spokes; ++i)
    for (uint64_t k : {2 * i, 2 * i + 1})
      if (k != 0) REQUIRE_NOTHROW(connections[k]->send(make_message(k, each)));
  TROUPE_REQUIRE_CLEAN(hub);
}

inline void a_slow_reader_bounds_its_writers(Backend& backend) {
  auto options = options_for("a");
  options.limits.queue_bytes = 1 << 20;
  Side a(backend, "a", options, false), b(backend, "b", 2, true);
  std::mutex mutex;
  std::condition_variable changed;
  bool entered = false, released = false, hung = false;
  b.events.on_each = [&](Connection&, Message&) {
    std::unique_lock lock(mutex);
    entered = true;
    changed.notify_all();
    if (!changed.wait_for(lock, kHang, [&] { return released; })) hung = true;
  };
  auto there = a.connect(b.address);
  // On a thread of its own: a transport may deliver on the sending thread.
  std::thread first([&] { there->send(make_message(1, 0)); });
  {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, kHang, [&] { return entered; }));
  }
  uint64_t sent = 1;
  ErrorKind kind{};
  bool refused = false;
  while (!refused && sent < 100000) {  // the system's own buffers take some
    try {
      there->send(make_message(1, sent, {64 << 10}));
      ++sent;
    } catch (const Error& e) {
      kind = e.kind();
      refused = true;
    }
  }
  REQUIRE(refused);
  REQUIRE(kind == ErrorKind::overloaded);
  REQUIRE(there->queued_bytes() > options.limits.queue_bytes / 2);
  REQUIRE(there->queued_bytes() <= options.limits.queue_bytes);
  auto writable = there->writable();
  REQUIRE_FALSE(writable.is_ready());
  {
    std::lock_guard lock(mutex);
    released = true;
    changed.notify_all();
  }
  first.join();
  REQUIRE(writable.wait_for(kHang));
  REQUIRE_NOTHROW(writable.get());
  there->send(make_message(1, sent++, {1}));
  REQUIRE(b.events.wait_messages(sent));
  const auto got = b.events.received(*b.events.accepted());
  for (uint64_t i = 0; i < sent; ++i) REQUIRE(got[i].number == i);
  REQUIRE_FALSE(hung);
  REQUIRE(there->writable().is_ready());
  // One message larger than the queue still fits into an empty one.
  REQUIRE_NOTHROW(there->send(make_message(1, sent, {2 << 20})));
  REQUIRE(b.events.wait_messages(sent + 1));
  TROUPE_REQUIRE_CLEAN(b);
}

inline void dies_quietly_under_traffic(Backend& backend, bool destroy_the_receiver) {
  Side a(backend, "a", 1), b(backend, "b", 2, true);
  b.events.on_each = [](Connection& c, Message& m) {
    try {
      c.send(make_message(m.header[0], m.header[1]));
    } catch (const Error&) {  // gone meanwhile
    }
  };
  std::vector<std::shared_ptr<Connection>> connections;
  for (int i = 0; i < 3; ++i) connections.push_back(a.connect(b.address));
  std::atomic<int> unexpected{0};
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < connections.size(); ++i)
    threads.emplace_back([&, i] {
      for (uint64_t n = 0;; ++n) {
        try {
          connections[i]->send(make_message(i, n, {n % 5000}));
        } catch (const Error& e) {
          if (e.kind() == ErrorKind::disconnected) return;
          if (e.kind() != ErrorKind::overloaded) {
            ++unexpected;
            return;
          }
          (void)connections[i]->writable().wait_for(kHang);
        }
      }
    });
  REQUIRE(b.events.wait_messages(200));
  Side& dying = destroy_the_receiver ? b : a;
  Side& other = destroy_the_receiver ? a : b;
  dying.destroy();
  for (auto& t : threads) t.join();
  REQUIRE(unexpected == 0);
  REQUIRE(other.events.wait_closed(3));
  TROUPE_REQUIRE_CLEAN(other);
  other.destroy();
  TROUPE_REQUIRE_CLEAN(a);
  TROUPE_REQUIRE_CLEAN(b);
}

inline void destruction_ends_what_waits(Backend& backend) {
  auto options = options_for("a");
  options.limits.connect = std::chrono::hours(1);
  Side a(backend, "a", options, false);
  auto future = a.transport->connect(backend.nowhere(), true);
  a.destroy();
  REQUIRE(failure_of(future) == ErrorKind::disconnected);
}

#undef TROUPE_REQUIRE_CLEAN

/// Runs all of it, a section each; to be called from a TEST_CASE.
inline void keeps_the_contract(const MakeBackend& make) {
  auto backend = make();
  SECTION("messages arrive in order and whole, both ways") { delivers_in_order_both_ways(*backend); }
  SECTION("messages of one thread keep their order among those of others") {
    keeps_each_senders_order(*backend);
  }
  SECTION("handlers answer each other any number of times") { handlers_answer_each_other(*backend); }
  SECTION("close is seen once by both sides, after what was queued") { close_is_seen_once_by_both(*backend); }
  SECTION("connecting to nobody is disconnected, to nonsense invalid") { nobody_is_disconnected(*backend); }
  SECTION("a retrying connect waits for the listener") { retry_waits_for_a_listener(*backend); }
  SECTION("a wrong token is refused and hurts nobody else") { a_wrong_token_is_refused(*backend); }
  SECTION("both ends know who the other is") { both_know_each_other(*backend); }
  SECTION("a message over the limits is invalid and the connection lives on") {
    too_large_is_invalid(*backend);
  }
  SECTION("connections outlive their listener") { connections_outlive_their_listener(*backend); }
  SECTION("connections are independent of each other") { connections_are_independent(*backend); }
  SECTION("a slow reader bounds the memory of its writers") { a_slow_reader_bounds_its_writers(*backend); }
  SECTION("a receiver destroyed under traffic is quiet at once") {
    dies_quietly_under_traffic(*backend, true);
  }
  SECTION("a sender destroyed under traffic is quiet at once") {
    dies_quietly_under_traffic(*backend, false);
  }
  SECTION("destruction ends what still waits to connect") { destruction_ends_what_waits(*backend); }
}

}  // namespace troupe::internal::net::contract
