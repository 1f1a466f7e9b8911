// Rings: bytes come out as they went in, nobody sleeps while something waits, and a side that lies is found
// out.
#include "net/socket/shared/ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <cstring>
#include <random>
#include <semaphore>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "net/socket/shared/shared_ring.h"

using namespace troupe;
using namespace troupe::internal::net;
using troupe::internal::Descriptor;

namespace {

bool write(RingWriter& writer, const std::vector<std::byte>& bytes) {
  const std::span<const std::byte> one[] = {bytes};
  return writer.write(one);
}

std::vector<std::byte> bytes_of(size_t size, size_t seed) {
  std::vector<std::byte> out(size);
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(seed * 37 + i * 11);
  return out;
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::invalid);
    return e.message();
  }
  return "accepted";
}

// The same memory, mapped again as another process would.
std::unique_ptr<SharedRing> other_side(SharedRing& ring) {
  std::string why;
  auto other = SharedRing::open(ring.fd(), 1 << 20, why);
  INFO(why);
  REQUIRE(other);
  return other;
}

}  // namespace

TEST_CASE("a ring gives back what was written, in order, around its end, and refuses what has no room") {
  const auto ring = SharedRing::make(4096);
  REQUIRE(ring);
  const auto mirror = other_side(*ring);
  RingWriter writer(ring->memory());
  RingReader reader(mirror->memory());
  std::mt19937 random(1);
  std::vector<std::byte> sent, got;
  int full = 0;
  for (size_t i = 0; i < 5000; ++i) {
    const auto message = bytes_of(random() % 1500, i);
    const size_t unread = reader.unread().size();
    const bool taken = write(writer, message);
    REQUIRE(taken == (message.size() <= 4096 - unread));
    if (taken) sent.insert(sent.end(), message.begin(), message.end());
    full += !taken;
    const auto here = reader.unread().first(random() % (std::min<size_t>(reader.unread().size(), 1400) + 1));
    got.insert(got.end(), here.begin(), here.end());
    reader.take(here.size());
  }
  const auto rest = reader.unread();
  got.insert(got.end(), rest.begin(), rest.end());
  CHECK(full > 100);
  CHECK(sent == got);
}

// The writer writes three times, and polls each time for a sleeper. The reader tries to sleep three times: it
// says so, polls once more, then sleeps until a doorbell. All orders of these steps are tried.
TEST_CASE("whatever the order of steps, a reader does not sleep while something waits for it") {
  int orders = 0, doorbells = 0, slept = 0;
  for (uint32_t order = 0; order < 1u << 12; ++order) {  // bit i: step i is the reader's
    if (__builtin_popcount(order) != 6) continue;
    ++orders;
    alignas(64) static std::byte data[256];
    RingControl control{};
    const RingMemory memory{&control, data, 128};
    RingWriter writer(memory);
    RingReader reader(memory);
    int written = 0, read = 0, writes = 0, reads = 0;
    bool says_so = false, asleep = false, rung = false;
    const auto wakes = [&] {
      asleep = rung = false;
      reader.wake_up();
      read += static_cast<int>(reader.unread().size() / 8);
      reader.take(reader.unread().size());
    };
    for (int step = 0; step < 12; ++step) {
      if (!(order >> step & 1)) {
        if (writes++ % 2 == 0) {
          REQUIRE(write(writer, bytes_of(8, 0)));
          ++written;
        } else if (writer.wake() != RingState::polls) {
          ++doorbells;
          rung = true;
        }
      } else if (asleep) {
        if (rung) wakes();
      } else if (reads++ % 2 == 0) {
        reader.sleep(RingState::for_bell);
        says_so = true;
      } else if (std::exchange(says_so, false)) {
        asleep = reader.empty();
        if (!asleep) wakes();
      }
    }
    if (asleep && rung) wakes();
    slept += asleep;
    if (asleep) REQUIRE(read == written);
  }
  CHECK(orders == 924);
  CHECK(doorbells > 300);
  CHECK(slept > 100);
}

TEST_CASE("two threads: every message arrives, and the reader sleeps whenever there is none") {
  const auto ring = SharedRing::make(4096);
  REQUIRE(ring);
  const auto mirror = other_side(*ring);
  constexpr uint64_t kMessages = 30000;
  std::counting_semaphore<> doorbell(0);
  std::thread writing([&] {
    RingWriter writer(ring->memory());
    for (uint64_t i = 0; i < kMessages; ++i) {
      std::vector<std::byte> bytes(8 + i % 200);
      std::memcpy(bytes.data(), &i, 8);
      while (!write(writer, bytes)) std::this_thread::yield();
      if (writer.wake() != RingState::polls) doorbell.release();
    }
  });
  RingReader reader(mirror->memory());
  uint64_t next = 0;
  while (next < kMessages) {
    if (reader.empty()) {
      reader.sleep(RingState::for_bell);
      if (reader.empty()) doorbell.acquire();
      reader.wake_up();
      continue;
    }
    uint64_t number;
    std::memcpy(&number, reader.unread().data(), 8);
    REQUIRE(number == next);
    reader.take(8 + next++ % 200);
  }
  writing.join();
  CHECK(reader.empty());
}

TEST_CASE("a side that counts wrongly is found out before any byte is touched") {
  const auto ring = SharedRing::make(4096);
  REQUIRE(ring);
  RingControl& control = *ring->memory().control;
  RingReader reader(ring->memory());
  for (uint64_t tail : {uint64_t{4097}, uint64_t{1} << 40, ~uint64_t{0}}) {
    control.tail = tail;
    CHECK(refusal([&] {
            (void)reader.unread();
          }).starts_with("[net] the writer of a ring of 4096 bytes says that"));
  }
  control.tail = 0;
  RingWriter writer(ring->memory());
  REQUIRE(write(writer, bytes_of(4000, 1)));
  for (uint64_t head : {uint64_t{4001}, uint64_t{1} << 40, uint64_t{1} << 63}) {
    control.head = head;
    CHECK(refusal([&] {
            (void)write(writer, bytes_of(200, 1));
          }).starts_with("[net] the reader of a ring says that"));
  }
  control.head = 100;
  CHECK(write(writer, bytes_of(196, 1)));
}

TEST_CASE("only memory of the right form, that cannot shrink, is taken for a ring") {
  const auto open = [](const Descriptor& fd, size_t most = 1 << 20) {
    std::string why;
    return SharedRing::open(fd, most, why) ? std::string("accepted") : why;
  };
  const auto memory = [](size_t size, int seals) {
    Descriptor fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(size)) == 0);
    REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
    return fd;
  };
  constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW;
  CHECK(open(memory(4096 + 8192, kSealed)) == "accepted");
  CHECK(open(memory(4096 + 8192, F_SEAL_GROW)) == "its size could change");
  CHECK(open(memory(4096 + 8192, F_SEAL_SHRINK)) == "its size could change");
  for (size_t size : {size_t{0}, size_t{4096}, size_t{8191}, size_t{4096 + 5000}, size_t{4096 + (2 << 20)}})
    CHECK(open(memory(size, kSealed)).starts_with("it has "));
  CHECK(open(Descriptor(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC))) == "it is no shared memory");
  CHECK(open(Descriptor()) == "it is no shared memory");

  const auto ring = SharedRing::make(10000);
  REQUIRE(ring);
  CHECK(ring->memory().capacity == 16384);
  CHECK(::ftruncate(ring->fd().get(), 4096) != 0);
  CHECK(open(ring->fd(), 8192).starts_with("it has "));
}
