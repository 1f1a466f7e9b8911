// Memory that other processes can map: its addresses and pages, and the allocator once it is open.
#include "core/memory/arena.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "core/base/log.h"
#include "core/memory/cpu_allocator.h"
#include "core/memory/lent.h"
#include "core/memory/storage.h"
#include "tests/support/in_child.h"
#include "tests/support/sanitized.h"

using namespace troupe;
using troupe::testing::in_child;

namespace {

constexpr size_t kMiB = size_t{1} << 20;

// ctest runs all tests of this program a second time with this: every large storage lies in an arena then.
const bool in_arena = [] {
  std::string why;
  return std::getenv("TROUPE_TEST_ARENA") && open_cpu_arena(size_t{64} << 30, why);
}();

std::unique_ptr<Arena> arena_of(size_t bytes) {
  std::string why;
  auto made = Arena::create(bytes, why);
  INFO(why);
  REQUIRE(made);
  return made;
}

// Has a storage for somebody, until `over`.
struct Holder final : Lender {
  Ref<Storage> storage;
  bool over = false;
  bool collect() override {
    if (over) storage = {};
    return !over;
  }
  size_t lent_bytes() const override { return storage ? storage->size() : 0; }
};

Ref<Storage> filled(size_t bytes, int with) {
  auto storage = Storage::allocate(bytes);
  std::memset(storage->data(), with, bytes);
  return storage;
}
bool all_are(const Storage& s, int value) {
  return std::all_of(s.data(), s.data() + s.size(),
                     [&](std::byte x) { return x == static_cast<std::byte>(value); });
}

TimePoint after(int seconds) { return Clock::system().now() + std::chrono::seconds(seconds); }

}  // namespace

TEST_CASE("blocks of an arena are zeros that nobody else has, and addresses that come back are joined") {
  const auto arena = arena_of(256 * kMiB);
  std::mt19937 random(7);
  struct Block {
    std::byte* p;
    size_t size;
    std::byte mark;
  };
  std::vector<Block> blocks;
  size_t taken = 0;
  for (int i = 0; i < 3000; ++i) {
    if (!blocks.empty() && (random() % 2 || taken > 96 * kMiB)) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const Block b = blocks.back();
      blocks.pop_back();
      for (const size_t at : {size_t{0}, b.size / 2, b.size - 1}) REQUIRE(b.p[at] == b.mark);
      arena->give(b.p, b.size);
      taken -= b.size;
      continue;
    }
    const size_t size = Arena::kSmallest + random() % (random() % 10 ? 300000 : 40 * kMiB);
    auto* const p = static_cast<std::byte*>(arena->take(size));
    REQUIRE(p);
    REQUIRE(reinterpret_cast<uintptr_t>(p) % (size < 2 * kMiB ? 4096 : 2 * kMiB) == 0);
    const auto mark = static_cast<std::byte>(1 + i % 200);
    for (const size_t at : {size_t{0}, size / 2, size - 1}) {
      REQUIRE(p[at] == std::byte{0});
      p[at] = mark;
    }
    blocks.push_back({p, size, mark});
    taken += size;
  }
  for (const Block& b : blocks) arena->give(b.p, b.size);
  CHECK(arena->free_ranges() == 1);
  CHECK(arena->resident() == 0);
  CHECK(arena->take(256 * kMiB + 1) == nullptr);
}

TEST_CASE("an arena has pages for what is taken and for nothing else") {
  const auto arena = arena_of(64 * kMiB);
  CHECK(arena->resident() == 0);
  void* const a = arena->take(5 * kMiB);
  void* const b = arena->take(100000);
  CHECK(arena->resident() >= 5 * kMiB + 100000);
  CHECK(arena->resident() < 8 * kMiB);
  CHECK(arena->offset_of(b) % 4096 == 0);
  arena->give(a, 5 * kMiB);
  CHECK(arena->resident() < kMiB);
  arena->give(b, 100000);
  CHECK(arena->resident() == 0);
}

TEST_CASE("where the system refuses an arena, it says why and changes nothing") {
  if (in_arena) return;  // it needs a process that has none
  CHECK(in_child([] {
          const rlimit none{0, 0};
          ::setrlimit(RLIMIT_NOFILE, &none);
          std::string why;
          TROUPE_WRONG_UNLESS(!Arena::create(kMiB, why));
          TROUPE_WRONG_UNLESS(why.starts_with("memfd_create: "));
          return std::string();
        }) == "");
  if (testing::kSanitized) return;  // which need addresses themselves
  CHECK(in_child([] {
          const rlimit few{size_t{4} << 30, size_t{4} << 30};
          if (::setrlimit(RLIMIT_AS, &few) != 0) return std::string();
          std::string why;
          TROUPE_WRONG_UNLESS(!open_cpu_arena(size_t{64} << 30, why));
          TROUPE_WRONG_UNLESS(why.starts_with("mmap: "));
          TROUPE_WRONG_UNLESS(!Arena::of_process());
          std::memset(Storage::allocate(kMiB)->data(), 1, kMiB);
          return std::string();
        }) == "");
}

TEST_CASE("large blocks lie in the arena from its opening on, and what is not used goes back") {
  if (in_arena) return;  // it needs a process that has none
  CHECK(in_child([] {
          const auto old = Storage::allocate(kMiB);
          { const auto kept = Storage::allocate(kMiB); }
          TROUPE_WRONG_UNLESS(!Arena::has(old->data()));
          std::string why;
          TROUPE_WRONG_UNLESS(open_cpu_arena(size_t{8} << 30, why));
          Arena& arena = *Arena::of_process();
          auto large = Storage::allocate(kMiB);
          TROUPE_WRONG_UNLESS(Arena::has(large->data()));  // not the block that was kept
          TROUPE_WRONG_UNLESS(!Arena::has(Storage::allocate(1000)->data()));
          TROUPE_WRONG_UNLESS(arena.resident() >= kMiB);
          const std::byte* const at = large->data();
          large = {};
          const uint64_t asked = allocator_stats().system_allocations;
          large = Storage::allocate(kMiB);
          TROUPE_WRONG_UNLESS(large->data() == at);
          TROUPE_WRONG_UNLESS(allocator_stats().system_allocations == asked);
          large = {};
          for (int i = 1; i <= 8; ++i) trim_cpu_memory(after(2 * i));
          TROUPE_WRONG_UNLESS(arena.resident() >= kMiB);
          trim_cpu_memory(after(16));  // too soon after the last time
          TROUPE_WRONG_UNLESS(arena.resident() >= kMiB);
          trim_cpu_memory(after(18));
          TROUPE_WRONG_UNLESS(arena.resident() == 0);
          large = Storage::allocate(16 * kMiB);
          large = {};
          release_cached_memory();
          TROUPE_WRONG_UNLESS(arena.resident() == 0);
          TROUPE_WRONG_UNLESS(arena.free_ranges() == 1);
          return std::string();
        }) == "");
}

TEST_CASE("a child goes on with copies, and neither side sees what the other one writes") {
  if (in_arena) return;  // it needs a process that has none
  CHECK(in_child([] {
          std::string why;
          TROUPE_WRONG_UNLESS(open_cpu_arena(size_t{8} << 30, why));
          const Arena& arena = *Arena::of_process();
          auto large = filled(kMiB, 7), beside = filled(100000, 6), last = filled(3 * kMiB, 4);
          const std::byte* const at = last->data();
          { const auto kept = filled(5 * kMiB, 5); }
          const auto child = [&] {
            TROUPE_WRONG_UNLESS(!Arena::of_process());
            TROUPE_WRONG_UNLESS(all_are(*large, 7) && all_are(*beside, 6) && all_are(*last, 4));
            const auto own = filled(kMiB, 8);
            TROUPE_WRONG_UNLESS(!Arena::has(own->data()));
            std::memset(large->data(), 9, kMiB);
            beside = {};
            release_cached_memory();
            TROUPE_WRONG_UNLESS(all_are(*last, 4) && all_are(*own, 8));
            return in_child([&] { return std::string(all_are(*large, 9) ? "" : "its own child has less"); });
          };
          const auto parent = [&] {
            std::memset(large->data(), 1, kMiB);
            last = {};
            last = filled(3 * kMiB, 2);
          };
          const size_t resident = arena.resident();
          const std::string wrong = in_child(child, parent);
          TROUPE_WRONG_UNLESS(last->data() == at);  // the block that the child has a copy of
          TROUPE_WRONG_UNLESS(arena.resident() == resident);
          TROUPE_WRONG_UNLESS(all_are(*large, 1) && all_are(*beside, 6) && all_are(*last, 2));
          return wrong;
        }) == "");
}

TEST_CASE("without memory for its copies a child cannot touch them, and its parent says so") {
  if (in_arena || testing::kSanitized) return;  // which need addresses themselves
  CHECK(in_child([] {
          std::string why;
          TROUPE_WRONG_UNLESS(open_cpu_arena(size_t{8} << 30, why));
          const auto large = filled(kMiB, 7);
          static std::string lines;
          internal::log::set_sink(
              [](internal::log::Level, const std::string& line) { lines += line + "\n"; });
          rlimit before{};
          ::getrlimit(RLIMIT_AS, &before);
          const rlimit none{0, before.rlim_max};
          ::setrlimit(RLIMIT_AS, &none);
          const pid_t child = ::fork();
          if (child == 0) {
            ::signal(SIGSEGV, SIG_DFL);
            ::_exit(large->data()[0] == std::byte{7});
          }
          ::setrlimit(RLIMIT_AS, &before);
          int status = 0;
          ::waitpid(child, &status, 0);
          TROUPE_WRONG_UNLESS(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
          const size_t first = lines.find("no memory to copy 1048576 bytes of large tensors for a child");
          TROUPE_WRONG_UNLESS(first != std::string::npos &&
                              lines.find("no memory", first + 1) == std::string::npos);
          TROUPE_WRONG_UNLESS(all_are(*large, 7));
          return std::string();
        }) == "");
}

TEST_CASE("whoever writes to what is lent looks first whether it has come back") {
  if (in_arena) return;  // it needs a process that has none
  CHECK(in_child([] {
          std::string why;
          TROUPE_WRONG_UNLESS(open_cpu_arena(size_t{8} << 30, why));
          const size_t in_use = allocator_stats().in_use;
          const auto x = Storage::allocate(kMiB);
          const std::byte* const first = x->data();
          std::memset(x->data(), 1, kMiB);
          auto holder = std::make_shared<Holder>();
          holder->storage = x->share(0, kMiB);
          add_lender(holder);
          TROUPE_WRONG_UNLESS(allocator_stats().lent == kMiB);
          x->own_bytes();
          TROUPE_WRONG_UNLESS(x->data() != first);
          x->data()[0] = std::byte{2};
          TROUPE_WRONG_UNLESS(holder->storage->data()[0] == std::byte{1});
          const std::byte* const second = x->data();
          auto other = std::make_shared<Holder>();
          other->storage = x->share(0, kMiB);
          add_lender(other);
          holder->over = other->over = true;  // nobody was told
          x->own_bytes();
          TROUPE_WRONG_UNLESS(x->data() == second);
          TROUPE_WRONG_UNLESS(allocator_stats().lent == 0);
          TROUPE_WRONG_UNLESS(holder.use_count() == 1);  // let go of, too
          const auto y = Storage::allocate(kMiB);
          TROUPE_WRONG_UNLESS(y->data() == first);  // warm
          TROUPE_WRONG_UNLESS(allocator_stats().in_use == in_use + 2 * kMiB);
          return std::string();
        }) == "");
}
