// Calls between workers of one process: arguments, results, errors, order, coroutines, deadlines.
#include <catch2/catch.hpp>

#include <thread>

#include "actors/worker/worker.h"
#include "core/tensor/creation.h"
#include "rref/ref_table.h"
#include "tests/support/error_of.h"
#include "troupe/cluster/cluster.h"

using namespace troupe;
using testing::error_of;

namespace {

struct Echo : Actor {
  explicit Echo(int64_t start) : count(start) {
    if (start < 0) throw std::runtime_error("a negative start");
  }
  int64_t add(int64_t n) { return count += n; }
  std::string text(std::string a, std::vector<double> b, std::map<std::string, int64_t> c,
                   std::optional<bool> d) {
    return a + "/" + std::to_string(b.size()) + "/" + std::to_string(c.at("x")) + "/" + (d ? "some" : "none");
  }
  Tensor tensor(const Tensor& t) const { return t; }
  std::tuple<int64_t, Tensor> both(Tensor t) { return {t.numel(), t}; }
  void nothing() {}
  void fails(std::string what) { throw std::runtime_error(what); }
  void blocks(bool ready) {
    Promise<void> p;
    if (ready) p.set();
    p.future().get();
  }
  Task<int64_t> blocks_late(RRef<Echo> other) {
    const auto answer = other.call<&Echo::add>(1);
    co_await answer;
    co_return answer.get();
  }
  Task<int64_t> blocks_in_callback() {
    const auto ready = Future<int64_t>::ready(1);
    const auto made = ready.then([ready](int64_t) { return ready.get(); });
    co_return co_await made;
  }
  Task<int64_t> looks(RRef<Echo> other) {
    const auto answer = other.call<&Echo::add>(1);
    co_await answer;
    co_return answer.peek()->value() + co_await answer;
  }
  Task<int64_t> relay(RRef<Echo> other, int64_t n) {
    const int64_t got = co_await other.call<&Echo::add>(n);
    co_return got * 10;
  }
  Task<int64_t> named(RRef<Echo> other) {
    const auto task = relay(other, 1);  // begins when it is awaited
    const auto future = other.call<&Echo::add>(2);
    const int64_t first = co_await future, second = co_await task;
    co_return first * 100 + second;
  }
  Task<int64_t> ping_pong(RRef<Echo> other, RRef<Echo> self, int64_t depth) {
    if (depth == 0) co_return count;
    co_return co_await other.call<&Echo::ping_pong>(self, other, depth - 1) + 1;
  }
  Task<int64_t> waits_twice(RRef<Echo> other) {
    const int64_t before = count;
    co_await other.call<&Echo::nothing>();
    co_return count - before;
  }
  Task<void> never() { co_await silent.future(); }
  Future<void> hopeless() { return Promise<void>().future(); }
  Task<void> abandoned() { co_await hopeless(); }
  Promise<void> silent;
  int64_t count;
  static constexpr auto remote =
      methods<&Echo::add, &Echo::text, &Echo::tensor, &Echo::both, &Echo::nothing, &Echo::fails,
              &Echo::blocks, &Echo::blocks_late, &Echo::blocks_in_callback, &Echo::looks, &Echo::relay,
              &Echo::named, &Echo::ping_pong, &Echo::waits_twice, &Echo::never, &Echo::abandoned>;
};

struct Other : Actor {
  void f() {}
  static constexpr auto remote = methods<&Other::f>;
};

}  // namespace

TEST_CASE("calls reach actors on other workers and on the same one") {
  auto cluster = Cluster::in_process(3, hosting<Echo>());
  for (const char* name : {"w0", "w1", "w2"}) {
    auto echo = cluster->spawn<Echo>(name, 5);
    CHECK(echo.call<&Echo::add>(2).get() == 7);
    CHECK(echo.call<&Echo::text>("a", std::vector<double>{1, 2}, std::map<std::string, int64_t>{{"x", 3}},
                                 std::nullopt)
              .get() == "a/2/3/none");
    echo.call<&Echo::nothing>().get();
    CHECK(echo.owner_name() == name);
  }
}

TEST_CASE("a named task and a named future are awaited by their names, constants too") {
  auto cluster = Cluster::in_process(2, hosting<Echo>());
  auto here = cluster->spawn<Echo>("w0", 0), there = cluster->spawn<Echo>("w1", 4);
  CHECK(here.call<&Echo::named>(there).get() == 6 * 100 + 7 * 10);
}

TEST_CASE("tensors arrive with their elements, whatever their dtype, size and strides") {
  auto cluster = Cluster::in_process(2, hosting<Echo>());
  auto echo = cluster->spawn<Echo>("w1", 0);
  const Tensor t = tensor({{1, 2, 3}, {4, 5, 6}}, float32);
  const std::vector<Tensor> cases = {t,
                                     t.alias({3, 2}, {1, 3}, 0),
                                     t.alias({2}, {3}, 1),
                                     zeros({0, 4}),
                                     tensor(7, float64),
                                     tensor({true, false}),
                                     tensor({-1})};
  for (const Tensor& c : cases) {
    const Tensor back = echo.call<&Echo::tensor>(c).get();
    CHECK(bit_equal(c, back));
    CHECK(back.storage() != c.storage());
  }
  CHECK_FALSE(echo.call<&Echo::tensor>(Tensor()).get().defined());
  CHECK(std::get<0>(echo.call<&Echo::both>(t).get()) == 6);
}

TEST_CASE("a call within a worker moves tensors and copies nothing") {
  auto cluster = Cluster::in_process(1, hosting<Echo>());
  auto echo = cluster->spawn<Echo>("w0", 0);
  const Tensor t = zeros({100});
  const Tensor back = echo.call<&Echo::tensor>(t).get();
  CHECK(back.bytes() == t.bytes());
}

TEST_CASE("calls from one caller to one actor are handled in order") {
  auto cluster = Cluster::in_process(2, hosting<Echo>());
  auto echo = cluster->spawn<Echo>("w1", 0);
  std::vector<Future<int64_t>> results;
  for (int i = 0; i < 2000; ++i) results.push_back(echo.call<&Echo::add>(1));
  for (int i = 0; i < 2000; ++i) REQUIRE(results[static_cast<size_t>(i)].get() == i + 1);
}

TEST_CASE("a future is an argument: the call leaves when it is ready") {
  auto cluster = Cluster::in_process(3, hosting<Echo>());
  auto a = cluster->spawn<Echo>("w1", 1);
  auto b = cluster->spawn<Echo>("w2", 100);
  CHECK(b.call<&Echo::add>(a.call<&Echo::add>(1)).get() == 102);
  const Error e = error_of(
      [&] { b.call<&Echo::relay>(a, Future<int64_t>::failed(Error(ErrorKind::overloaded, "x"))).get(); });
  CHECK(e.kind() == ErrorKind::overloaded);
}

TEST_CASE("an exception in a method reaches the caller with type, text, method, worker and actor") {
  auto cluster = Cluster::in_process(2, hosting<Echo>());
  auto echo = cluster->spawn<Echo>("w1", 0);
  const Error e = error_of([&] { echo.call<&Echo::fails>("out of coffee").get(); });
  CHECK(e.kind() == ErrorKind::failed);
  CHECK_THAT(e.what(), Catch::Contains("runtime_error: out of coffee") &&
                           Catch::Contains("Echo::fails on w1 (") && Catch::Contains("Echo#"));
  CHECK(echo.call<&Echo::add>(1).get() == 1);  // the actor lives
}

TEST_CASE("bad calls are errors that say what is wrong") {
  auto cluster = Cluster::in_process(2, hosting<Echo>(), {.leak_check = LeakCheck::off});
  auto echo = cluster->spawn<Echo>("w1", 0);
  SECTION("unknown worker") {
    const Error e = error_of([&] { cluster->spawn<Echo>("w7", 0); });
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.what(), Catch::Contains("no worker is named 'w7'. The workers are: w0, w1"));
  }
  SECTION("a worker number that nobody has, each time at once") {
    for (int i = 0; i < 3; ++i) {
      const auto answer = cluster->worker().call_service(99, "metrics", {});
      REQUIRE(answer.is_ready());
      const Error e = error_of([&] { answer.get(); });
      CHECK(e.kind() == ErrorKind::invalid);
      CHECK_THAT(e.what(), Catch::Contains("99"));
    }
  }
  SECTION("a worker that cannot be reached from here, each time at once") {
    cluster->worker().members().add({9, "w9", "elsewhere", {"unix:@there"}});
    for (int i = 0; i < 3; ++i) {
      const auto answer = cluster->worker().call_service(9, "metrics", {});
      REQUIRE(answer.is_ready());
      CHECK(error_of([&] { answer.get(); }).kind() == ErrorKind::disconnected);
    }
  }
  SECTION("unknown method") {
    const Error e = error_of([&] { echo.call_by_name("ad", {}).get(); });
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.what(), Catch::Contains("Echo::ad") && Catch::Contains("add, text"));
  }
  SECTION("number of arguments") {
    const Error e = error_of([&] { echo.call_by_name("add", {}).get(); });
    CHECK_THAT(e.what(), Catch::Contains("Echo::add] takes 1 arguments (int64), got 0"));
  }
  SECTION("type of an argument") {
    const Error e = error_of([&] { echo.call_by_name("add", {Value(std::string("3"))}).get(); });
    CHECK_THAT(e.what(), Catch::Contains("Echo::add] argument 1: expected int64, got string"));
  }
  SECTION("an empty reference") {
    CHECK(error_of([&] { RRef<Echo>().call<&Echo::add>(1).get(); }).kind() == ErrorKind::invalid);
  }
  SECTION("a constructor that throws, seen by every use") {
    auto bad = cluster->spawn<Echo>("w1", -1);
    for (int i = 0; i < 2; ++i) {
      const Error e = error_of([&] { bad.call<&Echo::add>(1).get(); });
      CHECK_THAT(e.what(), Catch::Contains("a negative start") && Catch::Contains("constructor of"));
    }
  }
  CHECK(echo.call<&Echo::add>(0).get() == 0);
}

TEST_CASE("spawning a type that the program does not have names those that it has") {
  auto cluster = Cluster::in_process(2, hosting<Echo>());
  const AnyRef unknown(cluster->here().table().spawn(1, "Unknown", 0, {}));
  const Error e = error_of([&] { unknown.call("f", {}).get(); });
  CHECK(e.kind() == ErrorKind::invalid);
  CHECK_THAT(e.what(), Catch::Contains("has no actor type Unknown") && Catch::Contains("Echo"));
}

TEST_CASE("blocking inside an actor is an error that says what to do") {
  auto cluster = Cluster::in_process(2, hosting<Echo>());
  auto a = cluster->spawn<Echo>("w1", 0), b = cluster->spawn<Echo>("w0", 0);
  const std::function<void()> uses[] = {
      [&] { a.call<&Echo::blocks>(false).get(); },
      [&] { a.call<&Echo::blocks>(true).get(); },
      [&] { a.call<&Echo::blocks_late>(b).get(); },
      [&] { a.call<&Echo::blocks_in_callback>().get(); },
      [&] { b.local([](Echo&) { Future<int64_t>::ready(1).get(); }).get(); },
  };
  for (const auto& use : uses) {
    const Error e = error_of(use);
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.what(), Catch::Contains("would block inside an actor") && Catch::Contains("co_await"));
  }
  CHECK(a.call<&Echo::looks>(b).get() == 4);
}

TEST_CASE("coroutine methods wait without blocking their actor") {
  auto cluster = Cluster::in_process(3, hosting<Echo>());
  auto a = cluster->spawn<Echo>("w1", 0);
  auto b = cluster->spawn<Echo>("w2", 3);
  CHECK(a.call<&Echo::relay>(b, 4).get() == 70);
  CHECK(a.call<&Echo::ping_pong>(b, a, 50).get() == 50);  // a and b wait for each other, 50 deep
  CHECK(a.call<&Echo::relay>(a, 1).get() == 10);          // an actor may wait for itself
}

TEST_CASE("many nested calls at once cannot use up a pool of threads") {
  auto cluster = Cluster::in_process(3, hosting<Echo>());
  auto a = cluster->spawn<Echo>("w1", 0);
  auto b = cluster->spawn<Echo>("w2", 0);
  std::vector<Future<int64_t>> all;
  for (int i = 0; i < 200; ++i)
    all.push_back((i % 2 ? a : b).call<&Echo::ping_pong>(i % 2 ? b : a, i % 2 ? a : b, 6));
  for (auto& f : all) CHECK(f.get() == 6);
}

TEST_CASE("a call without an answer ends at its deadline") {
  auto cluster = Cluster::in_process(2, hosting<Echo>());
  auto echo = cluster->spawn<Echo>("w1", 0);
  const Error e =
      error_of([&] { echo.with_timeout(std::chrono::milliseconds(30)).call<&Echo::never>().get(); });
  CHECK(e.kind() == ErrorKind::deadline);
  CHECK_THAT(e.what(), Catch::Contains("Echo::never on w1"));
}

TEST_CASE("waiting for a promise that has gone is an error, not a hang") {
  auto cluster = Cluster::in_process(2, hosting<Echo>());
  auto echo = cluster->spawn<Echo>("w1", 0);
  CHECK(error_of([&] { echo.call<&Echo::abandoned>().get(); }).kind() == ErrorKind::cancelled);
}

TEST_CASE("calls from several threads are each answered") {
  auto cluster = Cluster::in_process(3, hosting<Echo>());
  auto a = cluster->spawn<Echo>("w1", 0);
  auto b = cluster->spawn<Echo>("w2", 0);
  std::vector<std::thread> threads;
  std::atomic<int64_t> answered{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        (t % 2 ? a : b).call<&Echo::add>(1).get();
        ++answered;
      }
    });
  for (auto& t : threads) t.join();
  CHECK(answered == 2000);
  CHECK(a.call<&Echo::add>(0).get() + b.call<&Echo::add>(0).get() == 2000);
}

TEST_CASE("a reference that outlives its cluster fails when used") {
  RRef<Echo> echo;
  {
    auto cluster = Cluster::in_process(2, hosting<Echo>());
    echo = cluster->spawn<Echo>("w1", 0);
  }
  CHECK(error_of([&] { echo.call<&Echo::add>(1).get(); }).kind() == ErrorKind::cancelled);
}

namespace {

// Holds up who passes until it is open.
struct Gate : Actor {
  Task<int64_t> pass() {
    ++waiting;
    if (counted && waiting >= wanted) std::exchange(counted, {})->set();
    co_await opened.future();
    co_return 1;
  }
  Task<void> arrivals(int64_t n) {
    wanted = n;
    if (waiting >= wanted) co_return;
    counted.emplace();
    co_await counted->future();
  }
  void open() { opened.set(); }
  int64_t waiting = 0, wanted = 0;
  Promise<void> opened;
  std::optional<Promise<void>> counted;
  static constexpr auto remote = methods<&Gate::pass, &Gate::arrivals, &Gate::open>;
};

// Says when it goes.
struct Waiter : Actor {
  Waiter() { ++alive; }
  ~Waiter() override { --alive; }
  Task<int64_t> wait(RRef<Gate> gate, int64_t n) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += co_await gate.call<&Gate::pass>();
      state.push_back(sum);  // the object's own memory
    }
    co_return state.back();
  }
  std::vector<int64_t> state;
  static inline std::atomic<int> alive = 0;
  static constexpr auto remote = methods<&Waiter::wait>;
};

}  // namespace

TEST_CASE("an actor whose last reference goes while a method waits lives until the method ends", "[actors]") {
  auto cluster = Cluster::in_process(3, hosting<Gate, Waiter>());
  auto gate = cluster->spawn<Gate>("w2");
  std::vector<Future<int64_t>> waiting;
  for (int i = 0; i < 20; ++i) waiting.push_back(cluster->spawn<Waiter>("w1").call<&Waiter::wait>(gate, 3));
  gate.call<&Gate::open>().get();
  for (auto& w : waiting) CHECK(w.get() == 3);
  // `alive` falls to 0 once the last method has ended: a stopped cluster has no actors.
  cluster.reset();
  CHECK(Waiter::alive == 0);
}

TEST_CASE("a cluster stops although a method of an actor without references waits for ever", "[actors]") {
  auto cluster = Cluster::in_process(3, hosting<Gate, Waiter>(), {.leak_check = LeakCheck::off});
  auto gate = cluster->spawn<Gate>("w2");
  auto never = cluster->spawn<Waiter>("w1").call<&Waiter::wait>(gate, 1);
  gate.call<&Gate::arrivals>(1).get();
  cluster.reset();
  CHECK(error_of([&] { never.get(); }).kind() != ErrorKind::deadline);
  CHECK(Waiter::alive == 0);
}
