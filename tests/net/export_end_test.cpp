// The end of a connection that lent blocks: what the receiver holds stays as it was, in pages of its own.
#include <sys/resource.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <thread>

#include "tests/net/exports.h"
#include "tests/support/in_child.h"
#include "tests/support/sanitized.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using troupe::testing::in_child;

namespace {

constexpr size_t kMiB = size_t{1} << 20;

}  // namespace

TEST_CASE("once the connection has ended, what is held stays, and nothing of the sender's") {
  Exports p;
  auto sent = filled(kMiB, 1), large = filled(5 * kMiB, 2), gone = filled(kMiB, 3);
  auto came = p.adopted({sent, 0, kMiB}), part = p.adopted({large, 64, 2 * kMiB}),
       overlapping = p.adopted({large, kMiB, 2 * kMiB}), dropped = p.adopted({gone, 0, kMiB});
  const std::byte *const at = came->data(), *const at_dropped = dropped->data();
  dropped = {};
  p.exporter->retire();
  collect_lent();
  CHECK(p.exporter->lent_bytes() == 5 * kMiB);  // kept: the receiver reads
  CHECK_FALSE(p.exporter->lend({sent, 0, kMiB}));
  p.importer->detach();
  CHECK(p.importer->detached());
  CHECK(came->data() == at);
  CHECK(mapping_of(at).access == "r--p");
  CHECK(mapping_of(at_dropped).access == "");
  collect_lent();
  CHECK(p.exporter->lent_bytes() == 0);
  std::memset(sent->data(), 9, kMiB);
  std::memset(large->data(), 9, 5 * kMiB);
  CHECK(all_are(*came, 1));
  CHECK(all_are(*part, 2));
  CHECK(all_are(*overlapping, 2));
  p.importer.reset();
  const std::byte* const at_part = part->data();
  part = {};
  CHECK(mapping_of(at_part).access == "r--p");  // the other one has it
  CHECK(all_are(*overlapping, 2));
  overlapping = {};
  CHECK(mapping_of(at_part).access == "");
  came = {};
  CHECK(mapping_of(at).access == "");
}

TEST_CASE("a receiver that dies with what it has, or never got it, gives it back by its lease") {
  Exports p;
  const auto before = allocator_stats().in_use;
  p.exporter->lend({filled(kMiB, 1), 0, kMiB});  // on its way
  p.exporter->retire();
  collect_lent();
  CHECK(p.exporter->lent_bytes() == kMiB);
  p.importer.reset();  // as the kernel does for a process that dies
  collect_lent();
  CHECK(p.exporter->lent_bytes() == 0);
  CHECK(p.exporter.use_count() == 1);
  CHECK(allocator_stats().in_use == before);
}

TEST_CASE("pages are exchanged under those that read them") {
  Exports p;
  std::vector<Ref<Storage>> sent, came;
  for (int i = 0; i < 16; ++i) {
    sent.push_back(filled(kMiB, 1 + i));
    came.push_back(p.adopted({sent.back(), 0, kMiB}));
  }
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> reads{0}, wrong{0};
  std::vector<std::thread> readers;
  for (size_t r = 0; r < 2; ++r)
    readers.emplace_back([&, r] {
      std::minstd_rand random(static_cast<unsigned>(1 + r));
      while (!stop) {
        const size_t k = random() % came.size();
        const volatile std::byte* const bytes = came[k]->data();
        wrong += bytes[random() % kMiB] != static_cast<std::byte>(1 + k);
        reads.fetch_add(1, std::memory_order_relaxed);
      }
    });
  while (reads < 1000) std::this_thread::yield();
  p.importer->detach();
  for (const auto& s : sent) std::memset(s->data(), 0, kMiB);
  const uint64_t until = reads + 1000;
  while (reads < until) std::this_thread::yield();
  stop = true;
  for (auto& r : readers) r.join();
  CHECK(p.importer->detached());
  CHECK(wrong == 0);
}

TEST_CASE("without memory for what is held the mapping stays, and later attempts detach it") {
  // As ctest runs it there is none yet: a child has none of its parent's. Sanitizers need addresses
  // themselves.
  if (Arena::of_process() || troupe::testing::kSanitized) return;
  CHECK(in_child([] {
          Exports p;
          const auto sent = filled(32 * kMiB, 1);
          const auto came = p.adopted({sent, 0, 32 * kMiB});
          rlimit before{};
          ::getrlimit(RLIMIT_AS, &before);
          const rlimit none{kMiB, before.rlim_max};
          ::setrlimit(RLIMIT_AS, &none);
          p.exporter->retire();
          p.importer->detach();
          collect_lent();
          const bool detached = p.importer->detached(), kept = all_are(*came, 1);
          const size_t lent = p.exporter->lent_bytes();
          ::setrlimit(RLIMIT_AS, &before);
          TROUPE_WRONG_UNLESS(!detached);
          TROUPE_WRONG_UNLESS(kept);
          TROUPE_WRONG_UNLESS(lent == 32 * kMiB);
          collect_lent();
          TROUPE_WRONG_UNLESS(p.importer->detached());
          collect_lent();
          TROUPE_WRONG_UNLESS(p.exporter->lent_bytes() == 0);
          std::memset(sent->data(), 2, 32 * kMiB);
          TROUPE_WRONG_UNLESS(all_are(*came, 1));
          return std::string();
        }) == "");
}

TEST_CASE("a child that fork() makes keeps what its parent had, and holds nothing for it") {
  if (Arena::of_process()) return;  // as ctest runs it there is none yet
  CHECK(in_child([] {
          Exports p;
          auto sent = filled(kMiB, 1), gone = filled(kMiB, 2);
          auto came = p.adopted({sent, 64, kMiB / 2}), dropped = p.adopted({gone, 0, kMiB});
          const auto child = [&] {
            TROUPE_WRONG_UNLESS(all_are(*came, 1) && all_are(*dropped, 2));
            TROUPE_WRONG_UNLESS(mapping_of(came->data()).access == "r--p");
            came->own_bytes();
            std::memset(came->data(), 5, came->size());
            const std::byte* const at = dropped->data();
            dropped = {};
            TROUPE_WRONG_UNLESS(mapping_of(at).access == "");
            p.importer->detach();
            TROUPE_WRONG_UNLESS(all_are(*came, 5) && all_are(*sent, 1) && all_are(*gone, 2));
            return std::string();
          };
          std::string wrong;
          const auto parent = [&] {  // while the child lives
            if (!all_are(*came, 1) || p.exporter->lent_bytes() != kMiB + kMiB / 2) wrong = "not as before";
            sent->own_bytes();
            std::memset(sent->data(), 3, kMiB);
            dropped = {};
            p.exporter->retire();
            p.importer.reset();
            collect_lent();
            if (p.exporter->lent_bytes() != 0) wrong = "the child holds the lease";
            std::memset(gone->data(), 4, kMiB);
            if (!all_are(*came, 1)) wrong = "what came has changed";
          };
          wrong = in_child(child, parent) + wrong;
          return wrong;
        }) == "");
}
