// Large buffers in shared memory: they arrive as they were sent, their memory is used again and given back,
// and places that are none harm nobody.
#include <fcntl.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>

#include "core/tensor/creation.h"
#include "net/socket/shared/shared_heap.h"
#include "net/socket/shared/shared_memory.h"
#include "net/wire/wire.h"
#include "tests/net/socket_support.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using Catch::Contains;

namespace {

constexpr size_t kMiB = size_t{1} << 20;

// A heap, and the other side of it.
struct Pair {
  explicit Pair(size_t bytes = 64 * kMiB, size_t most = 32 * kMiB)
      : exporter(ExportedHeap::create(bytes, most)) {
    REQUIRE(exporter);
    std::string why;
    importer = ImportedHeap::open(exporter->fd(), bytes, why);
    INFO(why);
    REQUIRE(importer);
  }
  std::unique_ptr<ExportedHeap> exporter;
  std::unique_ptr<ImportedHeap> importer;
};

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "accepted";
}

// What the kernel says of the mapping around `address`: "r--s", and the flags of VmFlags.
struct Mapping {
  std::string access, flags;
};
Mapping mapping_of(const void* address) {
  std::ifstream smaps("/proc/self/smaps");
  const auto at = reinterpret_cast<uintptr_t>(address);
  Mapping found;
  for (std::string line; std::getline(smaps, line);) {
    uintptr_t begin = 0, end = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, access) == 3) {
      if (begin <= at && at < end) found.access = access;
    } else if (!found.access.empty() && line.starts_with("VmFlags:")) {
      found.flags = line.substr(8) + " ";
      break;
    }
  }
  return found;
}

}  // namespace

TEST_CASE("blocks are written by the sender alone, and neither side's go into core dumps") {
  Pair p;
  const auto place = p.exporter->take(100000);
  REQUIRE(place);
  std::memset(place->data, 7, 100000);
  const auto storage = p.importer->adopt(place->word, 100000);
  CHECK(mapping_of(place->data).access == "rw-s");
  CHECK(mapping_of(storage->data()).access == "r--s");
  for (const std::byte* side : {place->data, storage->data()})
    CHECK_THAT(mapping_of(side).flags, Contains(" dd "));
  storage->own_bytes();  // before a write
  CHECK(storage->data()[99999] == std::byte{7});
  storage->data()[0] = std::byte{8};
  CHECK(place->data[0] == std::byte{7});
  CHECK(p.exporter->take(100000)->word == place->word);  // it came back with the copy
}

TEST_CASE("what is exported is there until it is let go of, and its place is used again") {
  Pair p;
  const size_t before = allocator_stats().borrowed;
  const auto place = p.exporter->take(100000);
  REQUIRE(place);
  std::memset(place->data, 7, 100000);
  auto storage = p.importer->adopt(place->word, 100000);
  CHECK(storage->borrowed());
  CHECK(storage->data() != place->data);  // another mapping
  CHECK(storage->data()[99999] == std::byte{7});
  CHECK(allocator_stats().borrowed == before + 100000);
  const auto other = p.exporter->take(100000);
  REQUIRE(other);
  CHECK(other->word != place->word);
  storage = {};
  CHECK(allocator_stats().borrowed == before);
  CHECK(p.exporter->take(100000)->word == place->word);
  p.exporter->give_back(other->word);  // never sent
  CHECK(p.exporter->take(100000)->word == other->word);
  CHECK(p.exporter->take(70000)->word != other->word);
}

TEST_CASE("blocks never overlap, whatever comes and goes") {
  Pair p;
  std::mt19937 random(11);
  struct Exported {
    Ref<Storage> storage;
    std::byte mark;
  };
  std::vector<Exported> exported;
  size_t refused = 0;
  for (int i = 0; i < 5000; ++i) {
    if (!exported.empty() && random() % 2) {
      const size_t k = random() % exported.size();
      const Exported& l = exported[k];
      for (const size_t at : {size_t{0}, l.storage->size() / 2, l.storage->size() - 1})
        REQUIRE(l.storage->data()[at] == l.mark);
      std::swap(exported[k], exported.back());
      exported.pop_back();
      continue;
    }
    const size_t size = 1 + random() % (random() % 10 ? 300000 : 9 * kMiB);
    const auto place = p.exporter->take(size);
    if (!place) {
      ++refused;
      continue;
    }
    const auto mark = static_cast<std::byte>(i);
    std::memset(place->data, i & 0xff, size);
    exported.push_back({p.importer->adopt(place->word, size), mark});
    if (i % 100 == 0) p.exporter->trim();
  }
  CHECK(refused > 0);
}

TEST_CASE("a heap exports no more than it may, and gives pages back that nobody uses") {
  Pair p(64 * kMiB, 4 * kMiB);
  auto first = p.importer->adopt(p.exporter->take(2 * kMiB)->word, 2 * kMiB);
  auto second = p.importer->adopt(p.exporter->take(2 * kMiB)->word, 2 * kMiB);
  CHECK_FALSE(p.exporter->take(kMiB));
  second = {};
  CHECK(p.exporter->take(kMiB));
  CHECK(p.exporter->resident() == 5 * kMiB);
  for (int i = 0; i < 20; ++i) p.exporter->trim();
  CHECK(p.exporter->resident() == 3 * kMiB);  // what is exported stays
  CHECK(first->data()[0] == std::byte{0});
  CHECK_FALSE(p.exporter->take(100 * kMiB));
}

TEST_CASE("a place that is none is refused, and so is memory that is no heap") {
  Pair p;
  const auto at = [&](uint64_t word, size_t size) { return refusal([&] { p.importer->adopt(word, size); }); };
  const uint64_t good = p.exporter->take(kMiB)->word;
  CHECK(at(good, kMiB) == "accepted");
  CHECK_THAT(at(0, 8), Contains("a buffer of 8 bytes at 0 of shared memory"));  // the table
  CHECK_THAT(at(good + 1, 8), Contains("a buffer of 8 bytes"));
  CHECK_THAT(at(good, 64 * kMiB), Contains("of shared memory that has 67108864"));
  CHECK_THAT(at(good, ~size_t{0}), Contains("a buffer of"));
  CHECK_THAT(at((uint64_t{1} << 48) - 4096, 8), Contains("a buffer of"));
  CHECK_THAT(at(uint64_t{HeapMemory::kBlocks} << 48 | HeapMemory::kTable, 8), Contains("a buffer of"));

  std::string why;
  CHECK_FALSE(ImportedHeap::open(p.exporter->fd(), 1000, why));
  CHECK_THAT(why, Contains("expected 16385 to 1000"));
  CHECK_FALSE(ImportedHeap::open(make_shared_memory("small", 4096), kMiB, why));
  const Fd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  CHECK_FALSE(ImportedHeap::open(unsealed, kMiB, why));
  CHECK(why == "its size could change");
  const Fd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  CHECK_FALSE(ImportedHeap::open(file, kMiB, why));
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

TEST_CASE("a peer that names a place before there is a heap, or outside of it, is closed with the reason") {
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
  const auto reason = [&](bool with_heap) {
    RawClient peer(listener->address());
    REQUIRE(peer.shake().state() == Handshake::State::done);
    if (with_heap) {
      const Fd memory = make_shared_memory("test", kMiB);
      REQUIRE(send_with(peer.fd(), encode_prefix({.kind = FrameKind::heap_offer}), memory));
    }
    peer.send(frame(uint64_t{5} << 48 | (size_t{1} << 30)));
    events.wait_closed(++closed);
    return events.closed[closed - 1].message();
  };
  CHECK_THAT(reason(false), Contains("a buffer in shared memory on a connection that has none"));
  CHECK_THAT(reason(true),
             Contains("a buffer of 100000 bytes at 1073741824 of shared memory that has 1048576"));
}
