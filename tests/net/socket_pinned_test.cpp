// Buffers that a device still writes while they are sent: every way waits for the bytes that it takes.
#include <algorithm>

#include "tests/net/socket_support.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using Catch::Contains;

namespace {

constexpr size_t kChunk = PinnedBuffer::kChunk;

// Bytes arrive when they are waited for, and a chunk earlier at most. The device fails before byte `fails`.
class Arriving final : public PinnedBuffer {
 public:
  Arriving(size_t size, std::byte value, size_t fails)
      : Arriving(std::vector<std::byte>(size), value, fails) {}
  void fetch(const std::byte*) override {}
  size_t arrived(size_t least) override {
    if (least > fails_) throw_error(ErrorKind::failed, "[test] the device has failed");
    for (; there_ < least; there_ = std::min(there_ + kChunk, size()))
      std::fill_n(bytes_.begin() + static_cast<ptrdiff_t>(there_), std::min(kChunk, size() - there_), value_);
    return there_;
  }
  void forward(size_t) override {}

 private:
  Arriving(std::vector<std::byte> bytes, std::byte value, size_t fails)
      : PinnedBuffer(bytes.data(), bytes.size()), bytes_(std::move(bytes)), value_(value), fails_(fails) {}
  std::vector<std::byte> bytes_;
  const std::byte value_;
  const size_t fails_;
  size_t there_ = 0;
};

Buffer arriving(size_t size, uint64_t value, size_t fails = SIZE_MAX) {
  const auto pinned = std::make_shared<Arriving>(size, static_cast<std::byte>(value), fails);
  return {.storage = Storage::wrap(pinned->data(), size, pinned), .size = size, .pinned = pinned.get()};
}

SocketLimits without_arena(size_t ring) {
  SocketLimits limits;
  limits.arena_bytes = 0;
  limits.ring_bytes = ring;
  return limits;
}

void send_on(Two& two) {
  two.right.with([&] { two.right.messages.clear(); });
  constexpr uint64_t kMessages = 20;
  for (uint64_t i = 1; i <= kMessages; ++i) {
    Message m;
    m.header = {i};
    for (const size_t size : {size_t{1000}, 3 * kChunk + 5, size_t{70'000}, kChunk})
      m.buffers.push_back(arriving(size, i));
    m.buffers.push_back({Storage::allocate(8), 0, 8});
    std::fill_n(m.buffers.back().data(), 8, static_cast<std::byte>(i));
    two.link->send(std::move(m));
  }
  two.right.wait_messages(kMessages);
  for (uint64_t i = 1; i <= kMessages; ++i)
    for (const Buffer& b : two.right.messages[i - 1].buffers)
      REQUIRE(std::all_of(b.data(), b.data() + b.size,
                          [&](std::byte x) { return x == static_cast<std::byte>(i); }));
}

}  // namespace

TEST_CASE("bytes that still arrive from a device are waited for, by socket, ring and arena") {
  for (const size_t ring : {size_t{0}, size_t{1} << 20, size_t{32} << 20}) {
    Two two(without_arena(ring));
    send_on(two);
  }
  Two two;
  two.warm();
  send_on(two);
}

TEST_CASE("a device that fails in the middle of a message ends the connection, and both sides hear of it") {
  Two two(without_arena(0));
  Message m;
  m.header = {1};
  m.buffers.push_back(arriving(4 * kChunk, 1, kChunk));
  try {
    two.link->send(std::move(m));
  } catch (const Error& e) {  // else the socket was full before
    CHECK(e.kind() == ErrorKind::disconnected);
    CHECK_THAT(e.message(), Contains("broke: [test] the device has failed"));
  }
  two.left.wait_closed(1);
  CHECK_THAT(two.left.closed[0].message(),
             Contains("the connection to worker w2") && Contains("broke: [test] the device has failed"));
  two.right.wait_closed(1);
  CHECK_THAT(two.right.closed[0].message(), Contains("in the middle of a message"));
  CHECK(two.right.messages.empty());
}

TEST_CASE("a device that fails before anything is written is an error of send, and the connection stays") {
  for (const bool exports : {false, true}) {
    Two two(exports ? SocketLimits{} : without_arena(32 << 20));
    if (exports) two.warm();
    two.link->send(message(1));
    two.right.wait_messages(1);
    Message m;
    m.header = {2};
    m.buffers.push_back(arriving(2 * kChunk, 1, 0));
    try {
      two.link->send(std::move(m));
      FAIL("sent");
    } catch (const Error& e) {
      CHECK_THAT(e.message(), Contains("[test] the device has failed"));
    }
    if (!exports) continue;  // where the ring was not accepted yet the socket had to take it
    two.link->send(message(3));
    two.right.wait_messages(2);
    CHECK(two.left.closed.empty());
  }
}
