// Futures and promises: completion, callbacks, chains, joins, and what blocks where.
#include "core/async/future_combinators.h"

#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "core/base/log.h"
#include "tests/support/error_of.h"
#include "tests/support/stands_for.h"

using namespace troupe;
using namespace troupe::testing;
using Strings = std::vector<std::string>;

TEST_CASE("a future gives the value that its promise was given") {
  const Promise<int> p;
  const Future<int> f = p.future(), copy = f;
  CHECK(f.valid());
  CHECK_FALSE(Future<int>().valid());
  CHECK_FALSE(f.is_ready());
  CHECK(f.peek() == nullptr);
  CHECK_FALSE(f.wait_for(Duration(0)));
  CHECK(p.set(7));
  CHECK(f.is_ready());
  CHECK(f.get() == 7);
  CHECK(copy.get() == 7);
  CHECK(f.peek()->value() == 7);
  CHECK(f.wait_for(Duration(0)));
  CHECK(f.wait_for(Duration::max()));
  CHECK(Future<std::string>::ready("x").get() == "x");
}

TEST_CASE("a future of nothing just arrives") {
  const Promise<void> p;
  CHECK(p.set());
  p.future().get();
  CHECK(p.future().wait().ok());
  const Future<void> failed = Future<void>::failed(Error(ErrorKind::deadline, "late"));
  CHECK(error_text(ErrorKind::deadline, [&] { failed.get(); }) == "late");
}

TEST_CASE("an error is thrown by get, whole") {
  const Future<int> f = Future<int>::failed(Error(ErrorKind::disconnected, "gone", {"f on w1"}, "w1"));
  CHECK(f.wait().error().worker() == "w1");
  CHECK(error_text(ErrorKind::disconnected, [&] { f.get(); }) == "gone\n  in f on w1");
  CHECK_FALSE(f.peek()->ok());
}

TEST_CASE("the first completion wins") {
  const Promise<int> p;
  CHECK(p.set(1));
  CHECK_FALSE(p.set(2));
  CHECK_FALSE(p.fail(Error(ErrorKind::failed, "no")));
  CHECK(p.future().get() == 1);
}

TEST_CASE("of many threads that complete a promise exactly one wins, and callbacks run once") {
  for (int round = 0; round < 50; ++round) {
    const Promise<int> p;
    std::atomic<int> wins{0}, winner{-1}, calls{0}, seen{-1};
    p.future().on_ready([&](const Result<int>& r) { ++calls, seen = r.value(); });
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t, p] {
        if (p.set(t)) ++wins, winner = t;
      });
    for (auto& t : threads) t.join();
    CHECK(wins == 1);
    CHECK(calls == 1);
    CHECK(seen == winner);
    CHECK(p.future().get() == winner);
  }
}

TEST_CASE("a waiting thread is woken by value, error and abandonment") {
  for (int way = 0; way < 3; ++way) {
    Promise<int> p;
    Strings got;
    std::thread waiter([&got, f = p.future()] {
      got.push_back(f.wait().ok() ? std::to_string(f.get()) : f.wait().error().message());
    });
    if (way == 0) p.set(3);
    if (way == 1) p.fail(Error(ErrorKind::failed, "broke"));
    if (way == 2) p = Promise<int>();
    waiter.join();
    CHECK(got == Strings{way == 0   ? "3"
                         : way == 1 ? "broke"
                                    : "[future] whoever should have given the value has gone"});
  }
}

TEST_CASE("fifty callbacks on one future and a chain of a thousand see their values") {
  const Promise<int> p;
  const auto first = p.future();
  int called = 0;
  for (int i = 0; i < 50; ++i)
    first.on_ready([&, i](const Result<int>& r) { called += r.value() == 5 && called == i; });
  Future<int> last = first;
  for (int i = 0; i < 1000; ++i) last = last.then([](int n) { return n + 1; });
  p.set(5);
  CHECK(called == 50);
  CHECK(last.get() == 1005);
  CHECK(first.get() == 5);
}

TEST_CASE("callbacks run in the order in which they were added, or at once if the value is there") {
  const Promise<int> p;
  Strings calls;
  for (const char* name : {"a", "b", "c"})
    p.future().on_ready(
        [&calls, name](const Result<int>& r) { calls.push_back(name + std::to_string(r.value())); });
  CHECK(calls.empty());
  p.set(1);
  CHECK(calls == Strings{"a1", "b1", "c1"});
  p.future().on_ready([&](const Result<int>&) { calls.push_back("late"); });
  CHECK(calls.back() == "late");
}

TEST_CASE("callbacks added while another thread completes run exactly once") {
  for (int round = 0; round < 200; ++round) {
    const Promise<int> p;
    std::atomic<int> calls{0};
    std::thread setter([p] { p.set(5); });
    for (int i = 0; i < 10; ++i) p.future().on_ready([&](const Result<int>& r) { calls += r.value(); });
    setter.join();
    CHECK(calls == 50);
  }
}

TEST_CASE("a callback may destroy the promise that runs it") {
  struct Owner {
    Promise<int> promise;
  };
  auto owner = std::make_unique<Owner>();
  const Future<int> f = owner->promise.future();
  int after = 0;
  f.on_ready([&](const Result<int>&) { owner.reset(); });
  f.on_ready([&](const Result<int>& r) { after = r.value(); });
  CHECK(owner->promise.set(4));
  CHECK(owner == nullptr);
  CHECK(after == 4);
}

TEST_CASE("then maps values, passes errors by, and catches what is thrown") {
  const Promise<int> p;
  const Future<std::string> text = p.future().then([](int x) { return std::to_string(x + 1); });
  int seen = 0;
  const Future<void> nothing = text.then([&](const std::string& s) { seen = std::stoi(s); });
  const Future<double> from_nothing = nothing.then([] { return 0.5; });
  const Future<int> thrown = p.future().then([](int) -> int { throw std::runtime_error("oops"); });
  bool called = false;
  const Future<int> skipped = thrown.then([&](int x) { return called = true, x; });
  p.set(41);
  CHECK(text.get() == "42");
  nothing.get();
  CHECK(seen == 42);
  CHECK(from_nothing.get() == 0.5);
  CHECK(error_text(ErrorKind::failed, [&] { thrown.get(); }) == "std::runtime_error: oops");
  CHECK(error_text(ErrorKind::failed, [&] { skipped.get(); }) == "std::runtime_error: oops");
  CHECK_FALSE(called);
}

TEST_CASE("recover sees the error and gives a value, a future, or another error in its place") {
  const Promise<int> p;
  const auto value =
      p.future().recover([](const Error& e) { return e.kind() == ErrorKind::deadline ? 7 : 0; });
  const auto later = p.future().recover([](const Error&) { return Future<int>::ready(8); });
  const auto other = p.future().recover(
      [](const Error& e) -> int { throw Error(ErrorKind::overloaded, "instead of: " + e.message()); });
  const auto after = other.then([](int) { return 1; }).recover([](const Error& e) {
    return e.kind() == ErrorKind::overloaded ? 2 : 3;
  });
  p.fail(Error(ErrorKind::deadline, "late"));
  CHECK(value.get() == 7);
  CHECK(later.get() == 8);
  CHECK(error_text(ErrorKind::overloaded, [&] { other.get(); }) == "instead of: late");
  CHECK(after.get() == 2);
  CHECK(error_text(ErrorKind::deadline, [&] { p.future().get(); }) == "late");  // the first one keeps its own
  CHECK(Future<int>::ready(1).recover([](const Error&) { return 9; }).get() == 1);
  bool seen = false;
  Future<void>::failed(Error(ErrorKind::failed, "x")).recover([&](const Error&) { seen = true; }).get();
  CHECK(seen);
}

TEST_CASE("a future is cancelled by whoever has it, for all, and its promise may come too late") {
  const Promise<int> p;
  const auto f = p.future(), copy = f;
  int told = 0;
  copy.on_ready([&](const Result<int>& r) { told += r.error().kind() == ErrorKind::cancelled; });
  f.cancel();
  f.cancel();
  CHECK(told == 1);
  CHECK(copy.is_ready());
  CHECK_FALSE(p.set(1));
}

TEST_CASE("who watches for the end hears of it, and does not keep what nobody else wants") {
  for (const bool fails : {false, true}) {
    const Promise<int> p;
    const auto f = p.future();
    int heard = 0;
    f.watch_for_end([&](const Error* e) { heard += e ? 1 : 10; });
    CHECK(f.core().has_one_asker());
    fails ? p.fail(Error(ErrorKind::failed, "x")) : p.set(1);
    CHECK(heard == (fails ? 1 : 10));
    f.watch_for_end([&](const Error* e) { heard += e ? 1 : 10; });
    CHECK(heard == (fails ? 2 : 20));
  }
  const Promise<int> p;
  auto f = p.future();
  bool let_go = false;
  p.waits_for({std::shared_ptr<void>(&let_go, [](void*) {}), 0,
               [](void* flag, uint64_t, bool done) { *static_cast<bool*>(flag) = !done; }});
  f.watch_for_end([](const Error*) {});
  f = {};
  CHECK(let_go);
}

TEST_CASE("complete_with takes what the function returns or throws") {
  const Promise<int> good, bad;
  const Promise<void> nothing;
  CHECK(good.complete_with([] { return 3; }));
  CHECK(bad.complete_with([]() -> int { throw_error(ErrorKind::overloaded, "[q] full"); }));
  CHECK(nothing.complete_with([] {}));
  CHECK(good.future().get() == 3);
  CHECK(error_text(ErrorKind::overloaded, [&] { bad.future().get(); }) == "[q] full");
  nothing.future().get();
}

TEST_CASE("a promise that goes without a value cancels its future, once its last copy is gone") {
  Future<int> f;
  {
    const Promise<int> p;
    f = p.future();
    {
      Promise<int> copy = p, moved = std::move(copy), assigned;
      assigned = moved;
    }
    CHECK_FALSE(f.is_ready());
  }
  REQUIRE(f.is_ready());
  CHECK(f.peek()->error().kind() == ErrorKind::cancelled);
  // ... along a whole chain.
  Future<int> chained;
  {
    const Promise<int> p;
    chained = p.future().then([](int x) { return x; }).then([](int x) { return x; });
  }
  REQUIRE(chained.is_ready());
  CHECK(chained.peek()->error().kind() == ErrorKind::cancelled);
}

TEST_CASE("all() waits for every future and keeps their order") {
  CHECK(all(std::vector<Future<int>>{}).get().empty());
  const std::vector<Promise<int>> p(3);
  const auto joined = all(std::vector{p[0].future(), p[1].future(), p[2].future()});
  p[2].set(30);
  p[0].set(10);
  CHECK_FALSE(joined.is_ready());
  p[1].set(20);
  CHECK(joined.get() == std::vector<int>{10, 20, 30});
  CHECK(all(std::vector{Future<void>::ready({}), Future<void>::ready({})}).get().size() == 2);
}

TEST_CASE("all() gives the first error in order, once all have ended") {
  const std::vector<Promise<int>> p(3);
  const auto joined = all(std::vector{p[0].future(), p[1].future(), p[2].future()});
  p[2].fail(Error(ErrorKind::deadline, "third"));
  p[1].fail(Error(ErrorKind::failed, "second"));
  CHECK_FALSE(joined.is_ready());
  p[0].set(1);
  CHECK(error_text(ErrorKind::failed, [&] { joined.get(); }) == "second");
}

TEST_CASE("all() may give the first error in time, at once") {
  const std::vector<Promise<int>> p(3);
  const auto joined = all(std::vector{p[0].future(), p[1].future(), p[2].future()}, OnError::at_once);
  CHECK_FALSE(joined.is_ready());
  p[2].fail(Error(ErrorKind::deadline, "third"));
  REQUIRE(joined.is_ready());
  p[1].fail(Error(ErrorKind::failed, "second"));
  p[0].set(1);
  CHECK(error_text(ErrorKind::deadline, [&] { joined.get(); }) == "third");
  const std::vector<Promise<int>> q(2);
  const auto good = all(std::vector{q[0].future(), q[1].future()}, OnError::at_once);
  q[1].set(2);
  CHECK_FALSE(good.is_ready());
  q[0].set(1);
  CHECK(good.get() == std::vector<int>{1, 2});
}

TEST_CASE("any() gives the first value and whose it is, and failures count only if nothing else is left") {
  const std::vector<Promise<int>> p(3);
  const auto first = any(std::vector{p[0].future(), p[1].future(), p[2].future()});
  p[2].fail(Error(ErrorKind::failed, "third"));
  CHECK_FALSE(first.is_ready());
  p[1].set(20);
  REQUIRE(first.is_ready());
  p[0].set(10);
  CHECK(first.get() == std::pair<size_t, int>{1, 20});

  const std::vector<Promise<void>> q(2);
  const auto none = any(std::vector{q[0].future(), q[1].future()});
  q[1].fail(Error(ErrorKind::deadline, "second"));
  CHECK_FALSE(none.is_ready());
  q[0].fail(Error(ErrorKind::failed, "first"));
  CHECK(error_text(ErrorKind::failed, [&] { none.get(); }) == "first");
  CHECK(any(std::vector{Future<void>::failed(Error(ErrorKind::failed, "x")), Future<void>::ready({})})
            .get()
            .first == 1);
  CHECK(invalid_text([] { (void)any(std::vector<Future<int>>{}); }) ==
        "[future] any() of no futures: nothing would ever arrive");
}

TEST_CASE("then() of a function that gives a future is that future's value, error or end") {
  const Promise<int> p, q;
  const Future<std::string> text = p.future().then(
      [&](int x) { return q.future().then([x](int y) { return std::to_string(x) + std::to_string(y); }); });
  q.set(2);
  CHECK_FALSE(text.is_ready());
  p.set(1);
  CHECK(text.get() == "12");

  const auto one = Future<int>::ready(1);
  const Future<void> nothing = one.then([](int) { return Future<void>::ready({}); });
  nothing.get();
  CHECK(error_text(ErrorKind::overloaded, [&] {
          one.then([](int) { return Future<int>::failed(Error(ErrorKind::overloaded, "full")); }).get();
        }) == "full");
  CHECK(invalid_text([&] { one.then([](int) -> Future<int> { throw_invalid("[f] no"); }).get(); }) ==
        "[f] no");
  CHECK(invalid_text([&] { one.then([](int) { return Future<int>(); }).get(); }) ==
        "[future] the function gave an empty future");
  bool called = false;
  const auto failed = Future<int>::failed(Error(ErrorKind::failed, "before")).then([&](int) {
    called = true;
    return one;
  });
  CHECK(error_text(ErrorKind::failed, [&] { failed.get(); }) == "before");
  CHECK_FALSE(called);
  const auto gone = one.then([](int) { return Promise<int>().future(); });
  CHECK(error_text(ErrorKind::cancelled, [&] { gone.get(); }).starts_with("[future]"));
}

TEST_CASE("all() of futures that several threads complete") {
  for (int round = 0; round < 50; ++round) {
    const std::vector<Promise<int>> p(8);
    std::vector<Future<int>> futures;
    for (const auto& one : p) futures.push_back(one.future());
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (size_t i = t; i < p.size(); i += 4) p[i].set(static_cast<int>(i));
      });
    const auto joined = all(futures);
    CHECK(joined.get() == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
    for (auto& t : threads) t.join();
  }
}

TEST_CASE("callbacks run in the frame of whoever added them") {
  const Promise<int> p;
  uint64_t first = 0, second = 0, chained = 0;
  {
    const CallFrameScope scope(CallFrame{.context = 5});
    p.future().on_ready([&](const Result<int>&) { first = frame().context; });
  }
  {
    const CallFrameScope scope(CallFrame{.context = 6});
    p.future().then([&](int) { chained = frame().context; }).on_ready([](const Result<void>&) {});
  }
  p.future().on_ready([&](const Result<int>&) { second = frame().context + 100; });
  std::thread([&] {
    const CallFrameScope scope(CallFrame{.context = 9});
    p.set(1);
    CHECK(frame().context == 9);
  }).join();
  CHECK(first == 5);
  CHECK(chained == 6);
  CHECK(second == 100);
  CHECK(frame().context == 0);
}

TEST_CASE("waiting inside an actor is refused whether the value is there or not, and looking is not") {
  const Promise<int> p;
  const std::string what = "Layer::forward on w1 (Layer#0:3)";
  const Future<int> f = p.future();
  std::string in_callback;
  const CallFrameScope scope(
      CallFrame{.actor = testing::stands_for<internal::actors::ActorCell>(), .what = &what});
  const std::string advice =
      " would block inside an actor (Layer::forward on w1 (Layer#0:3)): make the method a coroutine "
      "(Task<T>) "
      "and co_await the future";
  f.on_ready([&](const Result<int>&) { in_callback = invalid_text([&] { f.get(); }); });
  for (const bool ready : {false, true}) {
    INFO("ready " << ready);
    if (ready) p.set(2);
    CHECK(f.is_ready() == ready);
    CHECK(invalid_text([&] { f.get(); }) == "[Future::get]" + advice);
    CHECK(invalid_text([&] { f.wait(); }) == "[Future::get]" + advice);
    CHECK(invalid_text([&] { f.wait_for(Duration(1)); }) == "[Future::wait_for]" + advice);
  }
  CHECK(in_callback == "[Future::get]" + advice);
  CHECK(f.peek()->value() == 2);
  int given = 0;
  (void)f.then([&](int n) { given = n; });
  CHECK(given == 2);
  const CallFrameScope outside{CallFrame()};
  CHECK(f.get() == 2);
  CHECK(f.wait_for(Duration(1)));
}

TEST_CASE("a result is a value or an error") {
  const Result<int> good = 3, bad = Error(ErrorKind::cancelled, "no");
  CHECK(good.ok());
  CHECK(good.value() == 3);
  CHECK_FALSE(bad.ok());
  CHECK(error_text(ErrorKind::cancelled, [&] { bad.value(); }) == "no");
  CHECK(Result<std::string>(std::string("moved")).value() == "moved");
}

namespace {

// The lines logged while it is alive.
struct Logged {
  Logged() {
    lines().clear();
    internal::log::set_sink([](internal::log::Level, const std::string& text) { lines().push_back(text); });
  }
  ~Logged() { internal::log::set_sink(nullptr); }
  static Strings& lines() {
    static Strings all;
    return all;
  }
};

}  // namespace

TEST_CASE("a callback that throws is logged, and changes nothing for the others") {
  const Logged logged;
  const Promise<int> p;
  const Future<int> f = p.future();
  int before = 0, after = 0;
  f.on_ready([&](const Result<int>& r) { before = r.value(); });
  f.on_ready([](const Result<int>&) { throw std::runtime_error("out of coffee"); });
  f.on_ready([&](const Result<int>& r) { after = r.value(); });
  const Future<int> next = f.then([](int n) { return n + 1; });
  CHECK(p.set(7));
  CHECK(before == 7);
  CHECK(after == 7);
  CHECK(next.get() == 8);
  CHECK(f.get() == 7);
  f.on_ready([](const Result<int>&) { throw std::runtime_error("out of tea"); });  // at once: it is ready
  REQUIRE(Logged::lines().size() == 2);
  CHECK_THAT(Logged::lines()[0], Catch::Contains("on_ready() threw") && Catch::Contains("out of coffee"));
  CHECK_THAT(Logged::lines()[1], Catch::Contains("out of tea"));
}

TEST_CASE("every use of an empty future or promise is an error that says so") {
  Future<int> given = Future<int>::ready(1);
  const Future<int> moved_to = std::move(given);
  const Future<int> by_default, copy = by_default;
  for (const Future<int>* f : {&by_default, &copy, static_cast<const Future<int>*>(&given)}) {
    const auto refused = [&](auto&& use) {
      CHECK_THAT(invalid_text(use), Catch::Contains("[future]") && Catch::Contains("empty future"));
    };
    CHECK_FALSE(f->valid());
    refused([&] { (void)f->is_ready(); });
    refused([&] { f->get(); });
    refused([&] { f->wait(); });
    refused([&] { (void)f->wait_for(Duration(1)); });
    refused([&] { f->peek(); });
    refused([&] { f->cancel(); });
    refused([&] { f->on_ready([](const Result<int>&) {}); });
    refused([&] { f->watch([](const Result<int>&) {}); });
    refused([&] { (void)f->then([](int) {}); });
    refused([&] { (void)f->recover([](const Error&) { return 1; }); });
    refused([&] { (void)f->as_source(); });
    const std::vector<Future<int>> two{moved_to, *f};
    CHECK_THAT(invalid_text([&] { (void)all(two); }), Catch::Contains("all(): future 1 is empty"));
    CHECK_THAT(invalid_text([&] { (void)any(two); }), Catch::Contains("any(): future 1 is empty"));
  }
  Promise<int> p;
  const Promise<int> other = std::move(p);
  const auto refused = [&](auto&& use) {
    CHECK_THAT(invalid_text(use), Catch::Contains("empty promise: it was moved from"));
  };
  refused([&] { (void)p.future(); });
  refused([&] { p.set(1); });
  refused([&] { p.fail(Error(ErrorKind::failed, "x")); });
  refused([&] { p.complete(Result<int>(1)); });
  refused([&] { p.complete_with([] { return 1; }); });
  refused([&] { p.waits_for({}); });
  refused([&] { p.settle<int>([] { return 1; }); });
  CHECK(other.set(3));
}
