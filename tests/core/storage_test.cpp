// Storages and the caching allocator behind them.
#include "core/memory/storage.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

// Allocates blocks of many sizes, writes all of each, and lets go of them.
void one_round() {
  std::vector<Ref<Storage>> held;
  for (size_t bytes = 0; bytes < 100'000; bytes = bytes * 5 / 4 + 1) {
    held.push_back(Storage::allocate(bytes));
    std::memset(held.back()->data(), 0xab, bytes);
  }
}

}  // namespace

TEST_CASE("a second identical round of allocations asks the system for nothing") {
  release_cached_memory();
  const AllocatorStats before = allocator_stats();
  one_round();
  const AllocatorStats first = allocator_stats();
  CHECK(first.system_allocations > before.system_allocations);
  CHECK(first.in_use == before.in_use);
  CHECK(first.cached > 0);
  one_round();
  const AllocatorStats second = allocator_stats();
  CHECK(second.system_allocations == first.system_allocations);
  CHECK(second.cached == first.cached);
  release_cached_memory();
  CHECK(allocator_stats().cached == 0);
}

TEST_CASE("blocks are aligned, and at most a quarter larger than asked for") {
  for (size_t bytes = 1; bytes < 3'000'000; bytes = bytes * 9 / 8 + 1) {
    const size_t before = allocator_stats().in_use;
    const auto block = Storage::allocate(bytes);
    const size_t taken = allocator_stats().in_use - before;
    CAPTURE(bytes);
    CHECK(block->size() == bytes);
    CHECK(reinterpret_cast<uintptr_t>(block->data()) % 64 == 0);
    CHECK(taken >= bytes);
    CHECK((taken <= bytes + bytes / 4 || taken < bytes + 64));
  }
}

TEST_CASE("live blocks do not overlap") {
  std::vector<Ref<Storage>> blocks;
  for (int i = 0; i < 200; ++i) {
    blocks.push_back(Storage::allocate(static_cast<size_t>(i) * 37 + 1));
    std::memset(blocks.back()->data(), i, blocks.back()->size());
    if (i % 3 == 2) blocks.erase(blocks.end() - 2);
  }
  for (const auto& b : blocks) {
    const auto value = b->data()[0];
    CHECK(std::count(b->data(), b->data() + b->size(), value) == static_cast<int64_t>(b->size()));
    CHECK(static_cast<size_t>(value) * 37 + 1 == b->size());
  }
}

TEST_CASE("a very large block goes straight back to the system") {
  release_cached_memory();
  const AllocatorStats before = allocator_stats();
  auto block = Storage::allocate((size_t{1} << 30) + 1);  // not written: takes no memory
  CHECK(allocator_stats().in_use > before.in_use + (size_t{1} << 30));
  block = nullptr;
  CHECK(allocator_stats().in_use == before.in_use);
  CHECK(allocator_stats().cached == before.cached);
}

TEST_CASE("more than the limit is refused, and counts nothing") {
  const AllocatorStats before = allocator_stats();
  CHECK(invalid_text([] { Storage::allocate(Storage::kMaxBytes + 1); }) ==
        "[storage] 1099511627777 bytes asked for; the limit is 1099511627776");
  CHECK(invalid_text([] { Storage::allocate(SIZE_MAX); }) ==
        "[storage] 18446744073709551615 bytes asked for; the limit is 1099511627776");
  CHECK(allocator_stats().in_use == before.in_use);
  CHECK(allocator_stats().system_allocations == before.system_allocations);
}

TEST_CASE("wrapped memory keeps its owner alive and is not the allocator's") {
  auto owner = std::make_shared<std::vector<std::byte>>(100);
  const std::weak_ptr<void> watch = owner;
  const AllocatorStats before = allocator_stats();
  auto wrapped = Storage::wrap(owner->data(), owner->size(), owner);
  CHECK(wrapped->data() == owner->data());
  CHECK(wrapped->size() == 100);
  owner.reset();
  CHECK_FALSE(watch.expired());
  wrapped = nullptr;
  CHECK(watch.expired());
  CHECK(allocator_stats().in_use == before.in_use);
  CHECK(allocator_stats().cached == before.cached);
}

TEST_CASE("memory to wrap needs an owner, which may be no more than a deleter") {
  std::byte memory[8];
  CHECK(invalid_text([&] { Storage::wrap(memory, 8, nullptr); }) ==
        "[storage] memory to wrap needs an owner");
  bool gone = false;
  auto wrapped = Storage::wrap(memory, 8, std::shared_ptr<void>(nullptr, [&](void*) { gone = true; }));
  CHECK_FALSE(gone);
  wrapped = nullptr;
  CHECK(gone);
}

TEST_CASE("several threads allocate and free at once, across threads too") {
  const size_t before = allocator_stats().in_use;
  std::vector<std::vector<Ref<Storage>>> made(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < made.size(); ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round) one_round();
      for (size_t i = 0; i < 50; ++i) made[t].push_back(Storage::allocate(i * 100));
    });
  for (auto& t : threads) t.join();
  threads.clear();
  for (size_t t = 0; t < made.size(); ++t) threads.emplace_back([&, t] { made[(t + 1) % 4].clear(); });
  for (auto& t : threads) t.join();
  CHECK(allocator_stats().in_use == before);
}

TEST_CASE("every write in place counts, and leaves its name") {
  const auto block = Storage::allocate(8);
  CHECK(block->version() == 0);
  CHECK(block->last_writer() == nullptr);
  block->bump_version("add_");
  block->bump_version("fill_");
  CHECK(block->version() == 2);
  CHECK(block->last_writer() == std::string("fill_"));
}
