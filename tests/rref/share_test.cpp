// References in structs, in results of results, in circles, home to their owner, and to actors that failed.
#include <catch2/catch.hpp>

#include <thread>

#include "tests/support/error_of.h"
#include "troupe/cluster/cluster.h"

using namespace troupe;
using testing::error_of;

namespace {

std::atomic<int> living{0};

struct Number : Actor {
  explicit Number(int64_t start) : n(start) {
    if (start < 0) throw std::runtime_error("a negative number");
    ++living;
  }
  ~Number() override { --living; }
  int64_t add(int64_t more) { return n += more; }
  int64_t n;
  static constexpr auto remote = methods<&Number::add>;
};

struct Two {
  RRef<Number> first, second;
};

struct Holder : Actor {
  Holder() { ++living; }
  ~Holder() override { --living; }
  void hold(Two t) { two = t; }
  Two held() { return two; }
  Task<int64_t> sum(int64_t more) {
    auto a = two.first.call<&Number::add>(more), b = two.second.call<&Number::add>(more);
    const int64_t x = co_await a;
    co_return x + co_await b;
  }
  // Takes what `other` holds and uses it from here.
  Task<int64_t> sum_of(RRef<Holder> other, int64_t more) {
    two = co_await other.call<&Holder::held>();
    co_return co_await sum(more);
  }
  void keep(std::vector<RRef<Number>> ns) { numbers = std::move(ns); }
  std::vector<RRef<Number>> give() { return numbers; }
  Task<std::vector<int64_t>> read() {
    std::vector<int64_t> out;
    for (auto& n : std::vector(numbers)) out.push_back(co_await n.call<&Number::add>(0));
    co_return out;
  }
  Task<void> hand_to(RRef<Holder> other) { co_await other.call<&Holder::keep>(std::exchange(numbers, {})); }
  // The reference goes along `way`; every hop puts the result of the next one in a list of its own.
  Task<Value> forward(RRef<Number> number, std::vector<RRef<Holder>> way) {
    if (way.empty()) co_return internal::to_value(number);
    const RRef<Holder> next = way.back();
    way.pop_back();
    Value inner = co_await next.call<&Holder::forward>(number, way);
    co_return Value(ValueList{std::move(inner)});
  }
  void befriend(RRef<Holder> other) { friends.push_back(other); }
  void forget() { two = {}, numbers.clear(); }
  Two two;
  std::vector<RRef<Number>> numbers;
  std::vector<RRef<Holder>> friends;
  static constexpr auto remote =
      methods<&Holder::hold, &Holder::held, &Holder::sum, &Holder::sum_of, &Holder::keep, &Holder::give,
              &Holder::read, &Holder::hand_to, &Holder::forward, &Holder::befriend, &Holder::forget>;
};

int64_t count(Cluster& cluster, const char* what) {
  int64_t n = 0;
  for (const auto& name : cluster.workers()) n += cluster.metrics(name)[what];
  return n;
}

// Reference messages are on their way for a moment; who waits for ever here has a leak.
void settles(Cluster& cluster, int64_t owned) {
  for (const char* what : {"owned_objects", "actors"})
    while (count(cluster, what) != owned) std::this_thread::yield();
  while (count(cluster, "pending_references") != 0) std::this_thread::yield();
}
void nothing_left(Cluster& cluster) {
  settles(cluster, 0);
  for (const char* what : {"borrowed_references", "owned_references"})
    while (count(cluster, what) != 0) std::this_thread::yield();
  CHECK(living == 0);
}

}  // namespace

TEST_CASE("twenty actors at once that each hold a pair of references") {
  auto cluster = Cluster::in_process(4, hosting<Number, Holder>());
  {
    std::vector<RRef<Holder>> holders;
    std::vector<Future<int64_t>> sums, elsewhere;
    std::vector<RRef<Holder>> users;
    for (int64_t i = 0; i < 20; ++i) {
      const auto on = [&](int64_t k) { return "w" + std::to_string((i + k) % 4); };
      holders.push_back(cluster->spawn<Holder>(on(0)));
      holders.back().tell<&Holder::hold>(
          Two{cluster->spawn<Number>(on(1), i), cluster->spawn<Number>(on(2), 100 * i)});
      sums.push_back(holders.back().call<&Holder::sum>(1));
      users.push_back(cluster->spawn<Holder>(on(3)));
    }
    for (int64_t i = 0; i < 20; ++i) REQUIRE(sums[size_t(i)].get() == 101 * i + 2);
    for (size_t i = 0; i < 20; ++i) elsewhere.push_back(users[i].call<&Holder::sum_of>(holders[i], 3));
    for (int64_t i = 0; i < 20; ++i) REQUIRE(elsewhere[size_t(i)].get() == 101 * i + 8);
  }
  nothing_left(*cluster);
}

TEST_CASE("a reference goes eight hops around a ring and comes back inside eight results") {
  auto cluster = Cluster::in_process(4, hosting<Number, Holder>());
  {
    std::vector<RRef<Holder>> ring;
    for (const char* worker : {"w0", "w1", "w2", "w3"}) ring.push_back(cluster->spawn<Holder>(worker));
    std::vector<RRef<Holder>> way;
    for (size_t hop = 8; hop > 0; --hop) way.push_back(ring[hop % 4]);  // w1, w2, ..., taken from the back
    Value value = ring[0].call<&Holder::forward>(cluster->spawn<Number>("w2", 5), way).get();
    for (int hop = 0; hop < 8; ++hop) {
      auto* list = value.get_if<ValueList>();
      REQUIRE(list);
      REQUIRE(list->size() == 1);
      value = Value((*list)[0]);
    }
    auto number = internal::from_value<RRef<Number>>(std::move(value));
    CHECK(number.owner_name() == "w2");
    CHECK(number.call<&Number::add>(2).get() == 7);
  }
  nothing_left(*cluster);
}

TEST_CASE("three references in one result, each changed at its owner and read back") {
  auto cluster = Cluster::in_process(4, hosting<Number, Holder>());
  {
    auto holder = cluster->spawn<Holder>("w1");
    {
      std::vector<RRef<Number>> made;
      for (const char* worker : {"w1", "w2", "w3"}) made.push_back(cluster->spawn<Number>(worker, 10));
      holder.call<&Holder::keep>(made).get();
    }
    const auto numbers = holder.call<&Holder::give>().get();
    REQUIRE(numbers.size() == 3);
    for (int64_t i = 0; i < 3; ++i) {
      CHECK(numbers[size_t(i)].owner() == WorkerId(i + 1));
      numbers[size_t(i)].call<&Number::add>(i).get();
    }
    CHECK(holder.call<&Holder::read>().get() == std::vector<int64_t>{10, 11, 12});
  }
  nothing_left(*cluster);
}

TEST_CASE("actors that hold each other live until their cluster ends, and end with it") {
  auto cluster = Cluster::in_process(3, hosting<Number, Holder>(), {.leak_check = LeakCheck::off});
  {
    auto a = cluster->spawn<Holder>("w1"), b = cluster->spawn<Holder>("w2"),
         self = cluster->spawn<Holder>("w1");
    a.call<&Holder::befriend>(b).get();
    b.call<&Holder::befriend>(a).get();
    self.call<&Holder::befriend>(self).get();
    settles(*cluster, 3);
  }
  settles(*cluster, 3);
  CHECK(living == 3);
  cluster.reset();
  CHECK(living == 0);
}

TEST_CASE("an owner that gets references to its own actors, straight or by others, keeps nothing") {
  auto cluster = Cluster::in_process(3, hosting<Number, Holder>());
  {
    auto a = cluster->spawn<Holder>("w1"), beside = cluster->spawn<Holder>("w1"),
         b = cluster->spawn<Holder>("w2");
    {
      auto number = cluster->spawn<Number>("w1", 3);
      a.call<&Holder::keep>(std::vector{number, number}).get();
    }
    a.call<&Holder::hand_to>(beside).get();  // within the owner
    beside.call<&Holder::hand_to>(a).get();
    a.call<&Holder::hand_to>(b).get();  // away and home
    b.call<&Holder::hand_to>(beside).get();
    CHECK(beside.call<&Holder::read>().get() == std::vector<int64_t>{3, 3});
    a.call<&Holder::hand_to>(a).get();  // to itself
    settles(*cluster, 4);
    beside.call<&Holder::forget>().get();
    settles(*cluster, 3);
  }
  nothing_left(*cluster);
}

TEST_CASE("an actor that could not be made says so wherever its reference went") {
  auto cluster = Cluster::in_process(4, hosting<Number, Holder>());
  {
    auto bad = cluster->spawn<Number>("w1", -1), good = cluster->spawn<Number>("w2", 1);
    const auto says_so = [](auto f) {
      const Error e = error_of([&] { f().get(); });
      CHECK_THAT(e.what(), Catch::Contains("a negative number") && Catch::Contains("constructor of"));
    };
    auto holder = cluster->spawn<Holder>("w3"), other = cluster->spawn<Holder>("w2");
    holder.call<&Holder::hold>(Two{good, bad}).get();
    says_so([&] { return holder.call<&Holder::sum>(1); });            // on a third worker, in a struct
    says_so([&] { return other.call<&Holder::sum_of>(holder, 1); });  // handed on from there
    holder.call<&Holder::keep>(std::vector{good, bad}).get();
    says_so([&] { return holder.call<&Holder::read>(); });  // in a container
    says_so([&] { return bad.call<&Number::add>(1); });
    CHECK(good.call<&Number::add>(0).get() == 3);
  }
  nothing_left(*cluster);
}
