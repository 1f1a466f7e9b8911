// Large buffers that two processes of a host share: they arrive as they were sent, whoever writes takes a
// copy first, their memory comes back, and places that are none harm nobody.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "core/memory/arena.h"
#include "core/memory/cpu_allocator.h"
#include "core/tensor/creation.h"
#include "net/wire/wire.h"
#include "tests/net/exports.h"
#include "tests/net/socket_support.h"
#include "tests/support/in_child.h"
#include "tests/support/sanitized.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using Catch::Contains;
using troupe::internal::Descriptor;
using troupe::testing::in_child;

namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("what is lent is there without a copy until it is let go of, and its slot is used again") {
  Exports p;
  const AllocatorStats before = allocator_stats();
  auto sent = filled(100000, 7);
  const auto word = p.exporter->lend({sent, 0, 100000});
  REQUIRE(word);
  auto storage = p.importer->adopt(*word, 100000);
  CHECK(storage->borrowed());
  CHECK(storage->data() != sent->data());  // another mapping
  CHECK(all_are(*storage, 7));
  CHECK(allocator_stats().borrowed == before.borrowed + 100000);
  CHECK(allocator_stats().lent == before.lent + 100000);
  sent->data()[0] = std::byte{9};  // no write that is announced
  CHECK(storage->data()[0] == std::byte{9});
  const std::byte* const at = sent->data();
  sent = {};
  CHECK(Storage::allocate(100000)->data() != at);  // it is still lent
  storage = {};
  CHECK(allocator_stats().borrowed == before.borrowed);
  CHECK(allocator_stats().lent == before.lent);
  CHECK(allocator_stats().in_use == before.in_use);
  const auto again = filled(100000, 8);
  CHECK(p.exporter->lend({again, 0, 100000}) == (p.place(*word, again)));
  p.exporter->take_back(*word);  // never sent
  CHECK(allocator_stats().lent == before.lent);
}

TEST_CASE("whichever side writes has a copy first, and the other side sees nothing of it") {
  Exports p;
  const auto sent = filled(kMiB, 1);
  const std::byte* const block = sent->data();
  auto came = p.adopted({sent, 0, kMiB}), second = p.adopted({sent, 0, kMiB});
  sent->own_bytes();
  CHECK(sent->data() != block);
  std::memset(sent->data(), 2, kMiB);
  CHECK(all_are(*came, 1));
  came->own_bytes();
  CHECK_FALSE(came->borrowed());
  std::memset(came->data(), 3, kMiB);
  CHECK(all_are(*second, 1));
  CHECK(all_are(*sent, 2));
  second = {};
  collect_lent();
  CHECK(p.exporter->lent_bytes() == 0);  // the first block is of nobody any more
}

TEST_CASE("a block that has come back is written where it is") {
  Exports p;
  const auto sent = filled(kMiB, 1);
  const std::byte* const block = sent->data();
  p.adopted({sent, 0, kMiB});
  sent->own_bytes();
  CHECK(sent->data() == block);
}

TEST_CASE("blocks are written by the sender alone, and neither side's go into core dumps or children") {
  Exports p;
  const auto sent = filled(100000, 7);
  const auto came = p.adopted({sent, 0, 100000});
  CHECK(mapping_of(sent->data()).access == "rw-s");
  CHECK(mapping_of(came->data()).access == "r--s");
  for (const std::byte* side : {sent->data(), came->data()}) {
    CHECK_THAT(mapping_of(side).flags, Contains(" dd "));
    CHECK_THAT(mapping_of(side).flags, Contains(" dc "));
  }
}

TEST_CASE("what is sent stays as it was, whatever comes, goes and is written") {
  Exports p(64 * kMiB);
  std::mt19937 random(11);
  struct Lent {
    Ref<Storage> sent, came;
    int mark;
  };
  std::vector<Lent> lent;
  size_t refused = 0;
  for (int i = 0; i < 3000; ++i) {
    if (!lent.empty() && random() % 2) {
      std::swap(lent[random() % lent.size()], lent.back());
      Lent& l = lent.back();
      for (const size_t at : {size_t{0}, l.came->size() / 2, l.came->size() - 1})
        REQUIRE(l.came->data()[at] == static_cast<std::byte>(l.mark));
      if (random() % 3 == 0) {
        l.sent->own_bytes();
        l.sent->data()[0] = l.sent->data()[l.sent->size() - 1] = std::byte{0};
        continue;
      }
      lent.pop_back();
      continue;
    }
    const size_t size = Arena::kSmallest + random() % (random() % 10 ? 300000 : 9 * kMiB);
    auto sent = filled(size, 1 + i % 200);
    const auto word = p.exporter->lend({sent, 0, size});
    if (!word) {
      ++refused;
      continue;
    }
    lent.push_back({sent, p.importer->adopt(*word, size), 1 + i % 200});
  }
  CHECK(refused > 0);
}

TEST_CASE("a receiver has no more bytes and slots at a time than it may") {
  Exports p(4 * kMiB);
  auto first = p.adopted({filled(2 * kMiB, 1), 0, 2 * kMiB});
  auto second = p.adopted({filled(2 * kMiB, 2), 0, 2 * kMiB});
  CHECK_FALSE(p.exporter->has_room(kMiB));
  CHECK_FALSE(p.exporter->lend({filled(kMiB, 3), 0, kMiB}));
  second = {};
  CHECK(p.exporter->has_room(kMiB));
  Exports many(size_t{8} << 30);
  const auto one = filled(Arena::kSmallest, 1);
  std::vector<Ref<Storage>> all;
  for (size_t i = 0; i < ExportTable::kSlots; ++i) all.push_back(many.adopted({one, 0, Arena::kSmallest}));
  CHECK_FALSE(many.exporter->lend({one, 0, Arena::kSmallest}));
  all.pop_back();
  CHECK(many.exporter->lend({one, 0, Arena::kSmallest}));
}

TEST_CASE("what is not ours alone, lies askew or would keep much more than itself is copied") {
  Exports p;
  const auto whole = Storage::allocate(kMiB);
  CHECK(ExportedBlocks::lies_well({whole, 0, kMiB}));
  CHECK(ExportedBlocks::lies_well({whole, 64, kMiB / 32}));
  CHECK_FALSE(ExportedBlocks::lies_well({whole, 4, kMiB / 2}));
  CHECK_FALSE(ExportedBlocks::lies_well({whole, 0, kMiB / 32 - 64}));
  CHECK_FALSE(ExportedBlocks::lies_well({whole->share(0, kMiB / 32 - 64), 0, kMiB / 32 - 64}));
  const auto owner = std::make_shared<Ref<Storage>>(whole);
  CHECK_FALSE(ExportedBlocks::lies_well({Storage::wrap(whole->data(), kMiB, owner), 0, kMiB}));
  CHECK_FALSE(ExportedBlocks::lies_well({p.adopted({whole, 0, kMiB}), 0, kMiB}));
  std::vector<std::byte> elsewhere(kMiB);
  CHECK_FALSE(ExportedBlocks::lies_well({Storage::wrap(elsewhere.data(), kMiB, owner), 0, kMiB}));
}

TEST_CASE("a place that is none is refused, and so is memory that is no arena") {
  Exports p;
  const auto at = [&](uint64_t word, size_t size) { return refusal([&] { p.importer->adopt(word, size); }); };
  const auto sent = filled(kMiB, 1);
  const uint64_t good = *p.exporter->lend({sent, 0, kMiB});
  CHECK(at(good, kMiB) == "accepted");
  const auto held = p.importer->adopt(good, kMiB);
  CHECK_THAT(at(good, kMiB), Contains("slot 0 of shared memory, which another one has"));
  const uint64_t other = good + (uint64_t{1} << 48);
  CHECK(at(other, kMiB) == "accepted");
  CHECK_THAT(at(0, 8), Contains("a buffer of 8 bytes at 0 of shared memory"));
  CHECK_THAT(at(other + 4, 8), Contains("a buffer of 8 bytes"));
  CHECK_THAT(at(other, 0), Contains("a buffer of 0 bytes"));
  CHECK_THAT(at(other, size_t{1} << 40), Contains("of shared memory that has"));
  CHECK_THAT(at(other, ~size_t{0}), Contains("a buffer of"));
  CHECK_THAT(at(uint64_t{2} << 48 | ((uint64_t{1} << 48) - 64), 8), Contains("a buffer of"));
  CHECK_THAT(at((uint64_t{ExportTable::kSlots} + 1) << 48, 8), Contains("a buffer of"));

  std::string why;
  const auto open = [&](const Descriptor& arena, const Descriptor& table, bool lease = true) {
    return ImportedArena::open(arena, table, lease ? Descriptor(::dup(0)) : Descriptor(), kMiB, why) !=
           nullptr;
  };
  const Descriptor table = make_shared_memory("test", ExportTable::kBytes),
                   arena = make_shared_memory("test", kMiB);
  CHECK(open(arena, table));
  CHECK_FALSE(open(arena, table, false));
  CHECK(why == "it came without a lease");
  CHECK_FALSE(open(arena, arena));
  CHECK(why == "its table has 1048576 bytes; expected 16384");
  CHECK_FALSE(open(make_shared_memory("test", 2 * kMiB), table));
  CHECK_THAT(why, Contains("expected whole pages, at most 1048576"));
  CHECK_FALSE(open(make_shared_memory("test", 5000), table));
  const Descriptor unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  CHECK_FALSE(open(unsealed, table));
  CHECK(why == "its size could change");
  const Descriptor file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  CHECK_FALSE(open(file, table));
}

TEST_CASE("where an arena is refused or full the socket does it, and one line says so") {
  if (Arena::of_process() || troupe::testing::kSanitized) return;
  for (const bool refused : {false, true})
    CHECK(in_child([&] {
            LogCapture lines;
            troupe::internal::log::set_level(troupe::internal::log::Level::info);
            SocketLimits limits;
            if (!refused) limits.arena_bytes = 8 * kMiB;
            const rlimit few{size_t{16} << 30, RLIM_INFINITY};  // of addresses
            if (refused) ::setrlimit(RLIMIT_AS, &few);
            Two two(limits);
            constexpr uint64_t kMessages = 20;
            for (uint64_t i = 1; i <= kMessages; ++i) {
              two.link->send(message(i, 3 * kMiB));
              two.right.wait_messages(i);
            }
            size_t borrowed = 0;
            for (const Message& m : two.right.messages) {
              const Buffer& b = m.buffers[0];
              borrowed += b.storage->borrowed();
              for (size_t at = 0; at < b.size; at += 4096)
                TROUPE_WRONG_UNLESS(b.data()[at] == static_cast<std::byte>(m.header[0] + at / 4096));
            }
            TROUPE_WRONG_UNLESS(borrowed <= (refused ? 0 : 2));
            const char* const line =
                refused ? "since there is no shared memory: mmap: " : "since shared memory is full";
            TROUPE_WRONG_UNLESS(lines.count(line) == 1);
            return std::string();
          }) == "");
}

TEST_CASE("large messages that are dropped take no more memory than a few of them") {
  Two two;
  two.warm();
  release_cached_memory();
  const size_t in_use = allocator_stats().in_use;
  constexpr uint64_t kMessages = 2000;
  for (uint64_t i = 1; i <= kMessages; ++i) {
    two.link->send(message(i, kMiB));
    two.right.wait([&] { return !two.right.messages.empty(); });
    two.right.with([&] {
      CHECK(two.right.messages[0].buffers[0].storage->borrowed());
      two.right.messages.clear();
    });
  }
  CHECK(allocator_stats().cached + allocator_stats().in_use < in_use + 64 * kMiB);
}

TEST_CASE("an ordinary result is lent as it is, and a pinned or foreign one is copied") {
  Two two;
  two.warm();
  const auto sent = filled(kMiB, 5);
  Message m;
  m.header = {1};
  m.buffers.push_back({sent, 0, kMiB});
  std::vector<std::byte> elsewhere(kMiB, std::byte{6});
  const auto owner = std::make_shared<int>();
  m.buffers.push_back({Storage::wrap(elsewhere.data(), kMiB, owner), 0, kMiB});
  two.link->send(std::move(m));
  two.right.wait_messages(1);
  std::fill(elsewhere.begin(), elsewhere.end(), std::byte{0});
  const Message& came = two.right.messages[0];
  for (const Buffer& b : came.buffers) CHECK(b.storage->borrowed());
  CHECK(all_are(*came.buffers[1].storage, 6));
  sent->data()[0] = std::byte{9};  // unannounced: the same memory
  CHECK(came.buffers[0].data()[0] == std::byte{9});
}

TEST_CASE("messages with large buffers arrive whole and in order, with others between them") {
  Two two;
  two.warm();
  std::mt19937 random(5);
  std::vector<size_t> sizes;
  for (uint64_t i = 0; i < 400; ++i) {
    Message m;
    m.header = {i};
    for (unsigned k = random() % 4; k > 0; --k) {
      const size_t size = random() % 3 ? random() % 1000 : random() % (2 * kMiB);
      auto storage = Storage::allocate(size);
      if (size) std::memset(storage->data(), static_cast<int>(i + k), size);
      m.buffers.push_back({storage, 0, size});
    }
    sizes.push_back(m.buffers.size());
    two.link->send(std::move(m));
  }
  two.right.wait_messages(sizes.size());
  size_t borrowed = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Message& m = two.right.messages[i];
    REQUIRE(m.header[0] == i);
    REQUIRE(m.buffers.size() == sizes[i]);
    for (size_t k = 0; k < m.buffers.size(); ++k) {
      const Buffer& b = m.buffers[k];
      const auto mark = static_cast<std::byte>(i + sizes[i] - k);
      REQUIRE(std::all_of(b.data(), b.data() + b.size, [&](std::byte x) { return x == mark; }));
      borrowed += b.storage->borrowed();
    }
  }
  CHECK(borrowed > 100);
}

TEST_CASE("a large buffer outlives its connection and its sender") {
  Recorder left, right;
  auto b = transport(right, "w2");
  const auto listener = b->listen(fresh_address());
  {
    auto a = transport(left, "w1");
    const auto link = a->connect(listener->address()).get();
    for (size_t n = 1;; ++n) {
      link->send(message(n, 100000));
      right.wait_messages(n);
      if (n > 5 && right.messages.back().buffers[0].storage->borrowed()) break;
    }
  }
  right.wait_closed(1);
  b.reset();
  for (const Message& m : right.messages)
    CHECK(m.buffers[0].data()[0] == static_cast<std::byte>(m.header[0]));
}

TEST_CASE("numbers that could be indices are never left where the sender can change them") {
  Two two;
  two.warm();
  const auto sent = [&](const Tensor& t) {
    two.right.with([&] { two.right.messages.clear(); });
    Call call;
    call.id = 1;
    call.args = {Value(t)};
    two.link->send(encode(call));
    two.right.wait_messages(1);
    CHECK(two.right.messages[0].buffers[0].storage->borrowed());
    const Packet packet = decode(std::move(two.right.messages[0]));
    const Tensor got = *std::get<Call>(packet).args[0].get_if<Tensor>();
    CHECK(std::memcmp(got.bytes(), t.bytes(), static_cast<size_t>(t.numel()) * item_size(t.dtype())) == 0);
    return got.storage()->borrowed();
  };
  CHECK(sent(full({100, 1000}, 3.0)));
  CHECK_FALSE(sent(full({100, 1000}, 3, int64)));
  CHECK_FALSE(sent(ones({1000, 1000}, boolean)));
}

TEST_CASE("a peer that names a place before there is an arena, or outside of it, is closed with the reason") {
  Recorder events;
  SocketLimits limits;
  limits.ring_bytes = 0;
  const auto server = transport(events, "w2", limits);
  const auto listener = server->listen(fresh_address());
  const auto frame = [](uint64_t word) {
    const auto prefix = encode_prefix({FrameKind::message, 0, 1, 0});
    const uint64_t words[] = {encode_size(100000, cpu, true), word};
    std::vector<std::byte> out(prefix.begin(), prefix.end());
    const auto rest = std::as_bytes(std::span(words));
    out.insert(out.end(), rest.begin(), rest.end());
    return out;
  };
  size_t closed = 0;
  const auto reason = [&](bool with_arena) {
    RawClient peer(listener->address());
    REQUIRE(peer.shake().state() == Handshake::State::done);
    if (with_arena) {
      const Descriptor memory = make_shared_memory("test", kMiB),
                       table = make_shared_memory("test", ExportTable::kBytes);
      int ends[2];
      REQUIRE(::pipe(ends) == 0);
      const Descriptor reading(ends[0]), lease(ends[1]);
      REQUIRE(send_with(peer.fd(), encode_prefix({.kind = FrameKind::arena_offer}), memory, table, lease));
    }
    peer.send(frame(uint64_t{5} << 48 | (size_t{1} << 30)));
    events.wait_closed(++closed);
    return events.closed[closed - 1].message();
  };
  CHECK_THAT(reason(false), Contains("a buffer in shared memory on a connection that has none"));
  CHECK_THAT(reason(true),
             Contains("a buffer of 100000 bytes at 1073741824 of shared memory that has 1048576"));
}
