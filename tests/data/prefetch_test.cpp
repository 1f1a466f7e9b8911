// Prefetch: the order of the source, bounds that hold, errors in their place, and an end at any time.
#include "data/datasets/prefetch.h"
#include "core/tensor/creation.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/base/generator.h"
#include "tests/support/error_of.h"

using namespace troupe;
using datasets::Prefetch;
using troupe::testing::error_text;
using troupe::testing::invalid_text;

namespace {

void has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}
// Takes a while that depends on the index, so that threads overtake each other.
int64_t labour(int64_t index) {
  volatile uint64_t sum = 0;
  for (uint64_t i = 0, n = splitmix64(static_cast<uint64_t>(index)) % 20'000; i < n; ++i) sum = sum + i;
  return index * index;
}

}  // namespace

TEST_CASE("items come in the order of the source, however many threads make them", "[data][prefetch]") {
  for (int64_t threads : {1, 2, 5}) {
    Prefetch<int64_t> items([](int64_t i) { return std::optional(labour(i)); },
                            {.threads = threads, .ahead = 7}, 300);
    int64_t expected = 0;
    for (int64_t item : items) {
      REQUIRE(item == expected * expected);
      ++expected;
    }
    CHECK(expected == 300);
    CHECK(!items.next());
  }
}

TEST_CASE("the epoch of a loader is the same prefetched", "[data][prefetch]") {
  std::vector<float> x(1000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const datasets::Loader loader({tensor(x).reshape({500, 2}), tensor(datasets::sequential(500))},
                                {.batch_size = 7, .seed = 3});
  for (int64_t threads : {1, 3}) {
    const datasets::Epoch epoch = loader.epoch(1);
    int64_t index = 0;
    for (const datasets::Batch& batch : datasets::prefetch(loader.epoch(1), {.threads = threads})) {
      const datasets::Batch same = epoch.batch(index);
      CHECK(batch.index == index++);
      CHECK(bit_equal(batch.x, same.x));
      CHECK(bit_equal(batch.y, same.y));
    }
    CHECK(index == loader.batches());
  }
}

TEST_CASE("a source may end by itself, and one thread reads it in order", "[data][prefetch]") {
  int64_t calls = 0;  // one thread: no lock
  Prefetch<std::string> items([&](int64_t i) -> std::optional<std::string> {
    if (i == 20) return {};
    return std::to_string(i) + " " + std::to_string(calls++);
  });
  for (int64_t i = 0; i < 20; ++i) REQUIRE(items.next() == std::to_string(i) + " " + std::to_string(i));
  CHECK(!items.next());
  CHECK(!items.next());
  Prefetch<int64_t> many([](int64_t i) { return i < 50 ? std::optional(labour(i)) : std::nullopt; },
                         {.threads = 4, .ahead = 8});
  int64_t count = 0;
  while (many.next()) ++count;
  CHECK(count == 50);
  CHECK(!Prefetch<int64_t>([](int64_t) { return std::optional<int64_t>(1); }, {}, 0).next());
}

TEST_CASE("no more is begun than the bounds allow", "[data][prefetch]") {
  struct Gauge {
    std::mutex mutex;
    std::condition_variable changed;
    int64_t begun = 0;
    void begin() {
      std::lock_guard lock(mutex);
      ++begun;
      changed.notify_all();
    }
    void wait_for(int64_t n) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return begun >= n; });
    }
    int64_t now() {
      std::lock_guard lock(mutex);
      return begun;
    }
  };
  for (int64_t threads : {1, 4}) {
    Gauge gauge;
    Prefetch<int64_t> items(
        [&](int64_t i) {
          gauge.begin();
          return std::optional(i);
        },
        {.threads = threads, .ahead = 3}, 40);
    for (int64_t taken = 0; taken < 40; ++taken) {
      gauge.wait_for(
          std::min<int64_t>(taken + 3, 40));  // as many as allowed are begun without being asked for
      CHECK(gauge.now() <= taken + 3);
      CHECK(items.next() == taken);
    }
    CHECK(gauge.now() == 40);
  }
  Gauge gauge;  // bytes: 100 each, so two fit into 250; a third would not
  Prefetch<int64_t> items(
      [&](int64_t i) {
        gauge.begin();
        return std::optional(i);
      },
      {.threads = 1, .ahead = 100, .bytes = 250}, 20, [](const int64_t&) { return size_t{100}; });
  for (int64_t taken = 0; taken < 20; ++taken) {
    gauge.wait_for(std::min<int64_t>(taken + 2, 20));
    CHECK(gauge.now() <= taken + 2);
    CHECK(items.next() == taken);
  }
  Prefetch<int64_t> large([](int64_t i) { return std::optional(i); }, {.threads = 3, .bytes = 1}, 10,
                          [](const int64_t&) { return size_t{1} << 40; });
  for (int64_t i = 0; i < 10; ++i) CHECK(large.next() == i);  // one at a time, but never stuck
}

TEST_CASE("an error comes out in its place, and again", "[data][prefetch]") {
  for (int64_t threads : {1, 4}) {
    Prefetch<int64_t> items(
        [](int64_t i) -> std::optional<int64_t> {
          labour(i);
          if (i >= 10) throw_error(ErrorKind::failed, "item " + std::to_string(i) + " is broken");
          return i;
        },
        {.threads = threads, .ahead = 6});
    for (int64_t i = 0; i < 10; ++i) REQUIRE(items.next() == i);
    for (int again = 0; again < 2; ++again)
      CHECK(error_text(ErrorKind::failed, [&] { items.next(); }) == "item 10 is broken");
  }
}

TEST_CASE("it can be dropped at any time", "[data][prefetch]") {
  std::atomic<int64_t> alive{0};
  struct Counted {
    std::atomic<int64_t>* alive;
    explicit Counted(std::atomic<int64_t>* a) : alive(a) { ++*alive; }
    Counted(const Counted& o) : alive(o.alive) { ++*alive; }
    ~Counted() { --*alive; }
  };
  for (int64_t round = 0; round < 60; ++round) {
    Prefetch<Counted> items(
        [&](int64_t i) {
          labour(i);
          return std::optional<Counted>(std::in_place, &alive);
        },
        {.threads = 1 + round % 4, .ahead = 5});
    for (int64_t i = 0; i < round % 7; ++i) items.next();
    Prefetch<Counted> moved = std::move(items);
    if (round % 2) moved.next();
  }
  CHECK(alive == 0);
}

TEST_CASE("options without sense are refused", "[data][prefetch]") {
  auto text = [](const datasets::PrefetchOptions& options, int64_t count = 1) {
    return invalid_text(
        [&] { Prefetch<int64_t>([](int64_t i) { return std::optional(i); }, options, count); });
  };
  has(text({.threads = 0}), "threads 0, expected 1 to 256");
  has(text({.threads = 1000}), "threads 1000");
  has(text({.ahead = 0}), "ahead 0");
  has(text({.bytes = 0}), "bytes 0");
  has(text({}, -1), "number of items -1");
}
