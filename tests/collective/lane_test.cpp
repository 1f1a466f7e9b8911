// The lanes of several ranks, each on a thread, in memory that they share: sums of all dtypes have the bits
// of the other ways, whatever goes by messages in between, and whoever sleeps is told.
#include <catch2/catch.hpp>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "collective/lane.h"
#include "core/base/generator.h"
#include "core/tensor/creation.h"
#include "ops/ops.h"

using namespace troupe;
using namespace troupe::internal::collective;

namespace {

Tensor lane_block() { return empty({static_cast<int64_t>((sizeof(LaneBlock) + 3) / 4)}, DType::float32); }

SmallCall sum_of(Tensor& x) { return {.xs = {&x, 1}}; }
SmallCall mean_of(Tensor& x) { return {.op = ReduceOp::mean, .xs = {&x, 1}}; }

// Lanes that read each other, and a bell for each.
struct LanesOfThreads {
  explicit LanesOfThreads(size_t ranks, uint64_t uses = 0) : bells(ranks), called(uses) {
    for (size_t r = 0; r < ranks; ++r)
      lanes.push_back(std::make_unique<Lane>(Standing{r, ranks}, 0, lane_block()));
    for (size_t r = 0; r < ranks; ++r)
      for (size_t from = 0; from < ranks; ++from)
        if (from != r) CHECK(lanes[r]->came(from, lanes[from]->block()));
    for (const auto& lane : lanes) CHECK(lane->is_ready());
  }
  struct Bell {
    std::mutex mutex;
    std::condition_variable condition;
    bool rings = false;
  };
  void tell(const LaneOutcome& outcome) {
    for (const size_t r : outcome.tell) {
      const std::lock_guard lock(bells[r].mutex);
      bells[r].rings = true;
      bells[r].condition.notify_one();
    }
  }
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<Bell> bells;
  std::vector<std::atomic<size_t>> called;  // of each operation: by so many
};

Tensor summand(uint64_t use, size_t rank, DType dtype) {
  Generator random(use * 64 + rank);
  const auto n = static_cast<int64_t>(1 + use % 40);
  return randn({n, 3}, random).to(dtype);
}

// The sum that a rank got of each operation; undefined: it went by messages.
std::vector<Tensor> sum_on(LanesOfThreads& all, size_t rank, uint64_t uses, uint64_t seed, Duration spin) {
  Generator random(seed);
  Lane& lane = *all.lanes[rank];
  std::vector<Tensor> sums(uses);
  std::vector<bool> decided(uses);
  const auto note = [&](LaneOutcome& outcome) {
    for (auto& d : outcome.decided) {
      if (d.result.defined()) sums[d.use] = d.result.reshape({d.result.numel() / 3, 3});
      decided[d.use] = true;
    }
    outcome.decided.clear();
    all.tell(outcome);
    outcome.tell.clear();
  };
  const auto await = [&](uint64_t use) {
    while (!decided[use]) {
      std::unique_lock lock(all.bells[rank].mutex);
      all.bells[rank].condition.wait(lock, [&] { return all.bells[rank].rings; });
      all.bells[rank].rings = false;
      lock.unlock();
      LaneOutcome outcome;
      lane.wake(outcome);
      note(outcome);
    }
    if (sums[use].defined()) return;
    for (size_t n; (n = all.called[use]) < all.lanes.size();) all.called[use].wait(n);  // as messages do
  };
  for (uint64_t use = 0; use < uses; ++use) {
    LaneOutcome outcome;
    if (random.below(16) && lane.has_room()) {
      Tensor x = summand(use, rank, use % 2 ? DType::float32 : DType::bfloat16);
      uint64_t taken = 0;
      const LaneWay way = lane.call(sum_of(x), spin, taken, outcome);
      if (taken != use) return {};
      decided[use] = way != LaneWay::open;
      if (way == LaneWay::memory) sums[use] = x;
      if (way == LaneWay::open) lane.sleep(use, outcome);
    } else {
      lane.by_messages(outcome);
      decided[use] = true;
    }
    note(outcome);
    ++all.called[use];
    all.called[use].notify_all();
    if (random.below(3)) await(use);
  }
  for (uint64_t use = 0; use < uses; ++use) await(use);
  return sums;
}

}  // namespace

TEST_CASE("ranks on threads sum by a lane, all or none of them, and whoever sleeps is told") {
  const auto [ranks, spin] = GENERATE(table<size_t, int>({{2, 20}, {2, 0}, {3, 0}, {5, 5}}));
  CAPTURE(ranks, spin);
  constexpr uint64_t kUses = 3000;
  LanesOfThreads all(ranks, kUses);
  std::vector<std::vector<Tensor>> sums(ranks);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks; ++r)
    threads.emplace_back(
        [&, r, us = spin] { sums[r] = sum_on(all, r, kUses, 100 + r, std::chrono::microseconds(us)); });
  for (std::thread& t : threads) t.join();
  size_t by_memory = 0;
  for (uint64_t use = 0; use < kUses; ++use) {
    const Tensor& first = sums[0].at(use);
    for (size_t r = 1; r < ranks; ++r)
      if (sums[r].at(use).defined() != first.defined()) FAIL("ranks decide differently about " << use);
    if (!first.defined()) continue;
    ++by_memory;
    std::vector<Tensor> given;
    std::vector<const std::byte*> summands;
    for (size_t r = 0; r < ranks; ++r) {
      given.push_back(summand(use, r, first.dtype()));
      summands.push_back(given.back().bytes());
    }
    const Tensor right = empty(given[0].shape(), first.dtype());
    reduce_elements(ReduceOp::sum, first.dtype(), right.bytes(), summands,
                    static_cast<size_t>(right.numel()));
    for (size_t r = 0; r < ranks; ++r)
      if (!sums[r][use].equal(right)) FAIL("rank " << r << " has another sum of " << use);
  }
  CHECK(by_memory > kUses / 10);
}

TEST_CASE("a lane is ready when all ranks read each other, and not after one has begun anew") {
  std::vector<std::unique_ptr<Lane>> lanes;
  for (size_t r = 0; r < 3; ++r) lanes.push_back(std::make_unique<Lane>(Standing{r, 3}, 0, lane_block()));
  const auto give = [&](size_t from, size_t to) { return lanes[to]->came(from, lanes[from]->block()); };
  for (size_t r = 0; r < 3; ++r) CHECK_FALSE(give(r, r));
  CHECK((give(0, 1) && give(0, 2) && give(1, 0) && give(1, 2)));
  CHECK_FALSE(lanes[2]->is_ready());
  CHECK_FALSE(lanes[0]->came(2, zeros({4})));
  CHECK(give(2, 0));
  CHECK(lanes[0]->is_ready());  // rank 1 does not read rank 2, and says so
  CHECK_FALSE(lanes[2]->is_ready());
  CHECK(give(2, 1));
  for (const auto& lane : lanes) CHECK(lane->is_ready());
  CHECK(give(1, 2));  // once more
  CHECK(lanes[2]->is_ready());
  Lane anew({1, 3}, 0, lane_block());
  CHECK_FALSE(lanes[2]->came(1, anew.block()));
  CHECK_FALSE(lanes[2]->is_ready());
  CHECK(anew.came(2, lanes[2]->block()));
  CHECK(anew.came(0, lanes[0]->block()));
  CHECK_FALSE(anew.is_ready());  // they read the one before
}

TEST_CASE("what a rank has closed goes by messages on the others, but for what it had called") {
  LanesOfThreads all(2);
  LaneOutcome ours, theirs;
  Tensor x = ones({3}), y = ones({3});
  uint64_t use = 0;
  CHECK(all.lanes[0]->call(mean_of(x), Duration(0), use, ours) == LaneWay::open);
  all.lanes[0]->close();
  CHECK_FALSE(all.lanes[0]->is_ready());
  CHECK(all.lanes[1]->call(mean_of(y), Duration(0), use, theirs) == LaneWay::memory);
  CHECK(y.equal(ones({3})));
  CHECK(all.lanes[1]->call(mean_of(y), Duration(0), use, theirs) == LaneWay::messages);
  all.lanes[0]->wake(ours);
  REQUIRE(ours.decided.size() == 1);
  CHECK(ours.decided[0].result.equal(ones({3})));
  CHECK(all.lanes[0]->is_idle());
}
