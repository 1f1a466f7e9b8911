// Calls that nobody wants any more end where they run: late ones, dropped ones, those of workers that are
// gone.
#include <catch2/catch.hpp>

#include <deque>
#include <latch>
#include <thread>

#include "actors/cell/this_call.h"
#include "actors/worker/worker.h"
#include "tests/support/error_of.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using namespace std::chrono_literals;

namespace {

std::atomic<int> open_frames = 0;  // of coroutines that wait

struct Inside {
  Inside() { ++open_frames; }
  ~Inside() { --open_frames; }
};

struct Link : Actor {
  /// Passes the call along the chain; the last one waits until it is opened.
  Task<int64_t> along(std::vector<RRef<Link>> chain) {
    Inside inside;
    ++arrived;
    if (chain.empty()) {
      co_await opened.future();
    } else {
      const RRef<Link> next = chain.front();
      chain.erase(chain.begin());
      co_await passes(next, chain);
    }
    ++finished;
    co_return 1;
  }
  Task<int64_t> passes(RRef<Link> next, std::vector<RRef<Link>> rest) {
    Inside inside;
    co_return co_await next.with_timeout(0s).call<&Link::along>(rest);
  }
  /// Waits for itself to be opened, then looks at futures that are ready already.
  Task<void> stubborn() {
    Inside inside;
    co_await opened.future();
    ++finished;
  }
  void open() { opened.set(); }
  int64_t count() { return ++counted; }
  int64_t seen(bool done) { return done ? finished : arrived; }
  RRef<Link> keep(RRef<Link> other) { return kept = std::move(other); }
  void drop() { kept = {}; }
  RRef<Link> kept;
  Promise<void> opened;
  int64_t arrived = 0, finished = 0, counted = 0;
  static constexpr auto remote = methods<&Link::along, &Link::stubborn, &Link::open, &Link::count,
                                         &Link::seen, &Link::keep, &Link::drop>;
};

// Three workers in virtual time, with one node each.
struct Chain {
  SimulatedCluster cluster;
  std::vector<RRef<Link>> nodes;
  explicit Chain(uint64_t seed = 1, internal::net::Faults faults = {.delay = 1ms})
      : cluster(seed, 3, hosting<Link>()) {
    cluster.network().set_faults(faults);
    for (size_t w = 0; w < 3; ++w) nodes.push_back(cluster.here(0).spawn<Link>(w));
    cluster.settle();
  }
  std::vector<RRef<Link>> after(size_t first) const {
    return {nodes.begin() + static_cast<int64_t>(first), nodes.end()};
  }
  int64_t seen(size_t node, bool done) { return cluster.await(nodes[node].call<&Link::seen>(done)).value(); }
  /// Nothing waits anywhere any more, and nothing is kept.
  void nothing_left() {
    cluster.settle();
    CHECK(open_frames == 0);
    nodes.clear();
    cluster.settle();
    for (size_t w = 0; w < 3; ++w)
      for (const char* what : {"pending_calls", "unanswered_calls", "owned_objects", "owned_references",
                               "borrowed_references", "pending_references", "actors"}) {
        INFO("w" << w << " " << what);
        CHECK(cluster.worker(w).metrics()[what] == 0);
      }
  }
};

}  // namespace

TEST_CASE("a call past its deadline ends at its callee, and so do the calls that it waits for", "[calls]") {
  Chain chain;
  const auto late = chain.nodes[1].with_timeout(100ms).call<&Link::along>(chain.after(2));
  const auto r = chain.cluster.await(late);
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().kind() == ErrorKind::deadline);
  chain.cluster.settle();
  CHECK(open_frames == 0);
  CHECK(chain.seen(1, false) == 1);
  CHECK(chain.seen(2, false) == 1);
  chain.cluster.await(chain.nodes[2].call<&Link::open>()).value();
  CHECK(chain.seen(1, true) == 0);
  CHECK(chain.seen(2, true) == 0);
  chain.nothing_left();
}

TEST_CASE("a dropped call ends at its callee, from there on to those that it called", "[calls]") {
  Chain chain;
  for (size_t first : {size_t{0}, size_t{1}}) {  // a local callee, a remote one
    INFO("callee " << first);
    std::optional<Future<int64_t>> f =
        chain.nodes[first].with_timeout(0s).call<&Link::along>(chain.after(first + 1));
    const Future<int64_t> copy = *f;
    const auto made = copy.then([](int64_t n) { return n + 1; });
    chain.cluster.settle();
    const int waiting = open_frames;
    CHECK(waiting == (first == 0 ? 5 : 3));
    SECTION("the last of several futures goes, callee " + std::to_string(first)) {
      *f = copy;
      f.reset();
    }
    SECTION("one of them is cancelled, callee " + std::to_string(first)) {
      f->cancel();
      const Error e = error_of([&] { copy.get(); });
      CHECK(e.kind() == ErrorKind::cancelled);
      CHECK(error_of([&] { made.get(); }).kind() == ErrorKind::cancelled);
    }
  }
  chain.cluster.settle();
  CHECK(open_frames == 0);
  CHECK(chain.seen(2, true) == 0);
  chain.nothing_left();
}

TEST_CASE("a call goes on as long as one of its futures is wanted", "[calls]") {
  Chain chain;
  auto ends = [&](auto wanted) {  // what is left of the call's futures
    chain.cluster.settle();
    CHECK(open_frames == 1);
    chain.cluster.await(chain.nodes[2].call<&Link::open>()).value();
    CHECK(chain.cluster.await(wanted).ok());
  };
  auto call = chain.nodes[2].with_timeout(0s).call<&Link::along>(chain.after(3));
  SECTION("a copy") { ends(Future<int64_t>(std::exchange(call, {}))); }
  SECTION("what then() made of it") {
    ends(std::exchange(call, {}).then([](int64_t n) { return n; }));
  }
  SECTION("what recover() made of it") {
    ends(std::exchange(call, {}).recover([](const Error&) { return int64_t{0}; }));
  }
  SECTION("a join") { ends(all(std::vector{std::exchange(call, {})})); }
  SECTION("a race") {
    ends(any(std::vector{std::exchange(call, {}), Future<int64_t>::failed(Error(ErrorKind::failed, "x"))}));
  }
  SECTION("an argument of a call") {
    auto sum = chain.nodes[1].call_by_name("count", {}).then([call](const Value&) { return call; });
    call = {};
    ends(sum);
  }
  SECTION("a callback") {
    const Promise<int64_t> p;
    std::exchange(call, {}).on_ready([p](const Result<int64_t>& r) { p.complete(r); });
    ends(p.future());
  }
  chain.nothing_left();
}

TEST_CASE("what is made of a call and dropped cancels it", "[calls]") {
  Chain chain;
  auto call = chain.nodes[2].with_timeout(0s).call<&Link::along>(chain.after(3));
  SECTION("then") {
    (void)std::exchange(call, {}).then([](int64_t n) { return n; }).then([](int64_t) {});
  }
  SECTION("then, of a future in a future") {
    auto outer = Future<int64_t>::ready(1).then([f = std::exchange(call, {})](int64_t) { return f; });
    chain.cluster.settle();
    CHECK(open_frames == 1);
    outer = {};
  }
  SECTION("recover") {
    (void)std::exchange(call, {}).recover([](const Error&) { return int64_t{0}; });
  }
  SECTION("all") { (void)all(std::vector{std::exchange(call, {})}); }
  SECTION("a join that has failed") {
    const auto failed =
        all(std::vector{std::exchange(call, {}), Future<int64_t>::failed(Error(ErrorKind::failed, "x"))},
            OnError::at_once);
    CHECK(failed.is_ready());
  }
  SECTION("a race that another has won") {
    const auto won = any(std::vector{std::exchange(call, {}), Future<int64_t>::ready(7)});
    CHECK(won.get().first == 1);
  }
  chain.nothing_left();
}

TEST_CASE("the calls of a worker that is gone end at its callees", "[calls]") {
  Chain chain;
  // Worker 1 waits for worker 2, and dies.
  const auto lost = chain.nodes[1].with_timeout(0s).call<&Link::along>(chain.after(2));
  chain.cluster.network().schedule(50ms, [&] { chain.cluster.network().crash("w1"); });
  CHECK_FALSE(chain.cluster.await(lost).ok());
  chain.cluster.settle();
  CHECK(chain.seen(2, false) == 1);
  chain.cluster.await(chain.nodes[2].call<&Link::open>()).value();
  CHECK(chain.seen(2, true) == 0);
  CHECK(chain.cluster.worker(2).metrics()["unanswered_calls"] == 0);
}

TEST_CASE("calls that are dropped, late or answered at any time leave nothing behind", "[calls]") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    Chain chain(seed, {.delay = 1ms, .jitter = 3ms});
    Generator random(seed);
    std::vector<Future<int64_t>> calls;
    for (int i = 0; i < 30; ++i) {
      const size_t first = random.below(3);
      const auto timeout = random.below(2) ? Duration(0) : std::chrono::milliseconds(1 + random.below(20));
      calls.push_back(chain.nodes[first].with_timeout(timeout).call<&Link::along>(chain.after(first + 1)));
      for (uint64_t n = random.below(12); n > 0; --n) chain.cluster.step();
      const size_t some = random.below(calls.size());
      if (random.below(2))
        calls.erase(calls.begin() + static_cast<int64_t>(some));
      else
        calls[some].cancel();
    }
    if (random.below(2)) chain.cluster.await(chain.nodes[2].call<&Link::open>()).value();
    calls.clear();
    chain.nothing_left();
  }
}

namespace {

// Keeps its worker busy until it is told, in plain methods.
struct Busy : Actor {
  void holds() {
    started->count_down();
    go_on->wait();
  }
  RRef<Link> gives(RRef<Link> node) {
    holds();
    return node;
  }
  bool watches() {
    started->count_down();
    while (!this_call::cancelled()) std::this_thread::yield();
    ++noticed;
    return true;
  }
  int64_t count() { return ++counted; }
  static inline std::latch *started = nullptr, *go_on = nullptr;
  static inline std::atomic<int> noticed = 0, counted = 0;
  static constexpr auto remote = methods<&Busy::holds, &Busy::gives, &Busy::watches, &Busy::count>;
};

void until_zero(Cluster& cluster, const char* what) {
  for (const auto& name : cluster.workers())
    while (cluster.metrics(name)[what] > (name == "w0" && what == std::string("pending_calls") ? 1 : 0))
      std::this_thread::yield();
}

}  // namespace

TEST_CASE("a call that is dropped before it has started is not run", "[calls]") {
  auto cluster = Cluster::in_process(2, hosting<Busy>());
  for (const char* where : {"w0", "w1"}) {
    std::latch started(1), go_on(1);
    Busy::started = &started, Busy::go_on = &go_on, Busy::counted = 0;
    auto busy = cluster->spawn<Busy>(where);
    const auto holds = busy.call<&Busy::holds>();
    started.wait();
    {
      const auto dropped = busy.call<&Busy::count>();
    }
    const auto wanted = busy.call<&Busy::count>();
    go_on.count_down();
    CHECK(wanted.get() == 1);
    holds.get();
  }
  until_zero(*cluster, "unanswered_calls");
  until_zero(*cluster, "pending_calls");
}

TEST_CASE("an uncancellable call is run although its future went, was cancelled, or failed at its deadline",
          "[calls]") {
  auto cluster = Cluster::in_process(2, hosting<Busy>());
  for (const char* where : {"w0", "w1"}) {
    std::latch started(1), go_on(1);
    Busy::started = &started, Busy::go_on = &go_on, Busy::counted = 0;
    auto busy = cluster->spawn<Busy>(where);
    const auto count = [&](std::optional<Duration> timeout = {}) {
      return AnyRef(busy).call("count", {}, {.timeout = timeout, .uncancellable = true});
    };
    const auto holds = busy.call<&Busy::holds>();
    started.wait();
    {
      const auto dropped = count();
    }
    {
      const auto dropped = count().then([](const Value&) {});
    }
    const auto cancelled = count(), late = count(1ns);
    cancelled.cancel();
    CHECK(error_of([&] { cancelled.get(); }).kind() == ErrorKind::cancelled);
    CHECK(error_of([&] { late.get(); }).kind() == ErrorKind::deadline);
    {
      CallScope left;
      (void)count();
    }
    const auto wanted = count();
    go_on.count_down();
    CHECK(std::get<int64_t>(wanted.get().v) == 6);
    holds.get();
  }
  until_zero(*cluster, "unanswered_calls");
  until_zero(*cluster, "pending_calls");
}

TEST_CASE("a plain method runs to its end, may look whether anybody waits, and its result is given back",
          "[calls]") {
  auto cluster = Cluster::in_process(3, hosting<Busy, Link>());
  CHECK_FALSE(this_call::cancelled());
  static std::deque<std::latch> latches;  // a cancelled method may be in one for a moment longer
  for (const char* where : {"w0", "w1"}) {
    std::latch &started = latches.emplace_back(2), &go_on = latches.emplace_back(1);
    Busy::started = &started, Busy::go_on = &go_on, Busy::noticed = 0;
    auto busy = cluster->spawn<Busy>(where), other = cluster->spawn<Busy>(where);
    {
      auto node = cluster->spawn<Link>("w2");
      const auto gives = busy.call<&Busy::gives>(node);
      const auto watches = other.call<&Busy::watches>();
      started.wait();
    }
    go_on.count_down();
    while (Busy::noticed == 0) std::this_thread::yield();
  }
  for (const char* what : {"unanswered_calls", "owned_objects", "pending_references", "pending_calls"})
    until_zero(*cluster, what);
}
