// A thread that serves runs long methods itself, and meanwhile others read its connection.
#include <atomic>
#include <catch2/catch.hpp>
#include <latch>
#include <thread>

#include "actors/runtime/runtime.h"
#include "core/async/waiting.h"
#include "tests/support/two_workers.h"

using namespace troupe;
using internal::actors::DispatchTarget;
using internal::actors::Runtime;

namespace {

// Is busy until it is told otherwise, on whatever thread that may be.
struct Busy : Actor {
  bool runs_here() {
    const int n = ++begun;
    begun.notify_all();
    for (int now = go_on; now < n; now = go_on) go_on.wait(now);
    return std::this_thread::get_id() == server.load();
  }
  int64_t echo(int64_t x) { return x; }
  static inline std::atomic<int> begun{0}, go_on{0};
  static inline std::atomic<std::thread::id> server;
  static constexpr auto remote = methods<blocking<&Busy::runs_here>, &Busy::echo>;
};

}  // namespace

TEST_CASE("a run queue has what its thread posts to the pool: one mailbox at a time, the others go there") {
  const auto runtime = Runtime::make(1);
  const auto here = std::this_thread::get_id();
  auto first = runtime->make_mailbox(), second = runtime->make_mailbox();
  std::vector<std::thread::id> ran(3);
  std::latch done(1), pool(1);
  const auto note = [&](size_t i) { ran[i] = std::this_thread::get_id(); };
  {
    const auto run_queue = runtime->make_run_queue();
    CHECK(run_queue->empty());
    first->post(internal::actors::make_job([&] { note(0); }), DispatchTarget::pool);
    first->post(internal::actors::make_job([&] { note(1); }), DispatchTarget::pool);
    second->post(internal::actors::make_job([&] {
                   note(2);
                   pool.count_down();
                 }),
                 DispatchTarget::pool);
    pool.wait();
    CHECK(ran[2] != here);
    CHECK(ran[0] == std::thread::id());
    REQUIRE_FALSE(run_queue->empty());
    run_queue->run();
    CHECK(run_queue->empty());
    CHECK(ran[0] == here);
    CHECK(ran[1] == here);
    first->post(internal::actors::make_job([&] {
                  note(0);
                  done.count_down();
                }),
                DispatchTarget::pool);
  }
  done.wait();  // what is left goes to the pool
  CHECK(ran[0] != here);
}

TEST_CASE("while a thread that serves runs a long method, others are answered on the same connection") {
  testing::TwoWorkers two(hosting<Busy>());
  auto busy = two.spawn<Busy>(), other = two.spawn<Busy>();
  CHECK(other.call<&Busy::echo>(1).get() == 1);
  Promise<void> end;
  std::thread serves([&] {
    Busy::server = std::this_thread::get_id();
    // Whom it has asked something it reads from.
    two.worker(1).call_service(0, "metrics", {}).get();
    const auto run_queue = two.worker(1).runtime().make_run_queue();
    const ServeScope serving(run_queue.get());
    end.future().get();
  });
  int here = 0;
  for (int i = 0; i < 50 || here == 0; ++i) {
    const auto long_one = busy.call<&Busy::runs_here>();
    Busy::begun.wait(i);
    CHECK(other.call<&Busy::echo>(i).get() == i);
    CHECK_FALSE(long_one.is_ready());
    ++Busy::go_on;
    Busy::go_on.notify_all();
    here += long_one.get();
  }
  end.set();
  serves.join();
}
