// Rings between sockets: what goes by them arrives in order with what does not, and a peer that scribbles in
// one, or offers something else, harms nobody.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <random>
#include <thread>

#include "core/async/ready.h"
#include "net/socket/shared/shared_memory.h"
#include "net/socket/shared/shared_ring.h"
#include "tests/net/socket_support.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using Catch::Contains;
using troupe::internal::Descriptor;

namespace {

constexpr FramePrefix kOffer{.kind = FrameKind::ring_offer};

enum class Bell { event, file, none };

// A peer by hand, which has proved the token.
struct RawPeer : RawClient {
  explicit RawPeer(const std::string& address) : RawClient(address) {
    REQUIRE(shake().state() == Handshake::State::done);
  }
  FramePrefix receive_prefix() {
    const auto bytes = receive(kPrefixBytes);
    REQUIRE(bytes.size() == kPrefixBytes);
    return decode_prefix(std::span(bytes).first<kPrefixBytes>(), {});
  }
  FramePrefix receive_past_heartbeats() {
    for (;;)
      if (const auto p = receive_prefix(); p.kind != FrameKind::heartbeat) return p;
  }
  // The ring that the server offers.
  std::unique_ptr<SharedRing> take_offer() {
    std::array<std::byte, kPrefixBytes> bytes;
    iovec part{bytes.data(), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> passed;
    msghdr m{};
    m.msg_iov = &part;
    m.msg_iovlen = 1;
    m.msg_control = passed.data();
    m.msg_controllen = passed.size();
    REQUIRE(::recvmsg(fd(), &m, 0) == static_cast<ssize_t>(kPrefixBytes));
    CHECK(decode_prefix(bytes, {}) == kOffer);
    Passed fds = passed_with(m);
    REQUIRE(fds.first);
    REQUIRE(fds.second);
    bell = std::move(fds.second);
    std::string why;
    return SharedRing::open(fds.first, 64 << 20, why);
  }
  void answer(bool accepted) { REQUIRE(send(answer_frame(FrameKind::ring_answer, accepted))); }
  // A bell of this kind; none: it is left out.
  void offer(int fd, Bell kind = Bell::event) {
    bell_out = Descriptor(kind == Bell::event  ? ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
                          : kind == Bell::file ? ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)
                                               : -1);
    const auto bytes = encode_prefix(kOffer);
    REQUIRE((fd < 0 ? send(bytes) : send_with(this->fd(), bytes, Descriptor(::dup(fd)), bell_out)));
  }
  void ring() const { REQUIRE(::eventfd_write(bell_out.get(), 1) == 0); }
  uint64_t rung() const {
    eventfd_t times = 0;
    ::eventfd_read(bell.get(), &times);
    return times;
  }
  Descriptor bell, bell_out;  // of the ring that was taken, and of the one that was offered
};

struct Server {
  explicit Server(SocketLimits limits = {}) {
    limits.arena_bytes = 0;  // its offer would be one more frame
    transport = test::transport(events, "w2", limits);
    listener = transport->listen(fresh_address());
  }
  std::shared_ptr<Connection> connection(size_t n = 0) {
    events.wait_accepted(n + 1);
    return events.accepted[n];
  }
  Recorder events;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Listener> listener;
};

std::vector<std::byte> frame_of(const Message& m, uint32_t number) {
  auto out = message_head(m, {}, number);
  const auto words = std::as_bytes(std::span(m.header));
  out.insert(out.end(), words.begin(), words.end());
  for (const auto& b : m.buffers) out.insert(out.end(), b.data(), b.data() + b.size);
  return out;
}

bool write(RingWriter& writer, const std::vector<std::byte>& bytes) {
  const std::span<const std::byte> one[] = {bytes};
  return writer.write(one);
}

}  // namespace

TEST_CASE("small messages go by the ring once it is accepted, and wake a reader that sleeps") {
  Server server;
  RawPeer peer(server.listener->address());
  const auto ring = peer.take_offer();
  REQUIRE(ring);
  server.connection()->send(message(1));
  CHECK(peer.receive_prefix() ==
        FramePrefix{FrameKind::message, 1, 0, 0});  // not yet answered: by the socket
  CHECK(peer.receive(8).size() == 8);
  RingReader reader(ring->memory());
  CHECK(reader.empty());
  reader.sleep(RingState::for_bell);
  peer.answer(true);
  uint64_t sent = 2;
  for (; reader.empty(); ++sent) {  // until the answer was read
    server.connection()->send(message(sent));
    if (reader.empty()) CHECK(peer.receive(kPrefixBytes + 8).size() == kPrefixBytes + 8);
  }
  CHECK(peer.rung() == 1);
  server.connection()->send(message(sent));
  CHECK(peer.rung() == 0);  // once is enough
  reader.sleep(RingState::on_word);
  std::thread sleeps([&] {
    const auto asleep = static_cast<uint32_t>(RingState::on_word);
    while (reader.word() == asleep && Ready().wait_with(reader.word(), asleep, TimePoint::max())) continue;
  });
  server.connection()->send(message(sent));
  sleeps.join();
  CHECK(peer.rung() == 0);
  const uint32_t beats = reader.beats();
  while (reader.beats() == beats) std::this_thread::yield();
  std::array<std::byte, kPrefixBytes> first;
  std::copy_n(reader.unread().begin(), first.size(), first.begin());
  CHECK(decode_prefix(first, {}).kind == FrameKind::message);
  CHECK(decode_prefix(first, {}).number >= 1);
}

TEST_CASE("a peer that wants no ring, and one that offers what is none, are served by the socket") {
  Server server;
  RawPeer peer(server.listener->address());
  REQUIRE(peer.take_offer());
  peer.answer(false);
  peer.answer(true);  // too late: ignored
  const Descriptor file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const Descriptor unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto good = SharedRing::make(1 << 16);
  REQUIRE(good);
  struct Offer {
    int fd;
    Bell bell = Bell::event;
  };
  for (const Offer o : {Offer{-1}, Offer{file.get()}, Offer{unsealed.get()},
                        Offer{good->fd().get(), Bell::file}, Offer{good->fd().get(), Bell::none}}) {
    peer.offer(o.fd, o.bell);
    const auto answer = peer.receive_past_heartbeats();
    CHECK(answer.kind == FrameKind::ring_answer);
    CHECK(answer.count == 0);
  }
  REQUIRE(peer.send(frame_of(message(7, 5000), 0)));
  server.events.wait_messages(1);
  CHECK(server.events.messages[0].header[0] == 7);
  server.connection()->send(message(8));
  CHECK(peer.receive_past_heartbeats().kind == FrameKind::message);
}

TEST_CASE("messages by ring and socket are delivered in the order of their numbers") {
  Server server;
  RawPeer peer(server.listener->address());
  const auto ring = SharedRing::make(1 << 16);
  REQUIRE(ring);
  peer.offer(ring->fd().get());
  REQUIRE(peer.take_offer());
  CHECK(peer.receive_past_heartbeats().count == 1);
  RingWriter writer(ring->memory());
  // 1 and 2 by the ring before 0 by the socket; 3 by the socket after 4 in the ring.
  REQUIRE(write(writer, frame_of(message(1), 1)));
  REQUIRE(write(writer, frame_of(message(2, 100), 2)));
  REQUIRE(write(writer, frame_of(message(4), 4)));
  peer.ring();
  REQUIRE(peer.send(frame_of(message(0, 100000), 0)));
  server.events.wait_messages(3);
  REQUIRE(peer.send(frame_of(message(3), 3)));
  server.events.wait_messages(5);
  for (uint64_t i = 0; i < 5; ++i) CHECK(server.events.messages[i].header[0] == i);
  // What lies in the ring when the stream ends arrives before the end does.
  REQUIRE(write(writer, frame_of(message(5), 5)));
  REQUIRE(write(writer, frame_of(message(6), 6)));
  peer.close();
  server.events.wait_closed(1);
  CHECK(server.events.messages.size() == 7);
}

TEST_CASE("a peer that lies about a ring, or fills it with anything, is closed with the reason") {
  Server server;
  size_t closed = 0;  // and as many were accepted before
  const auto reason = [&] {
    server.events.wait_closed(++closed);
    return server.events.closed[closed - 1].message();
  };
  const auto with_ring = [&](const std::function<void(RawPeer&, SharedRing&)>& f) {
    RawPeer peer(server.listener->address());
    const auto ring = SharedRing::make(1 << 16);
    REQUIRE(ring);
    peer.offer(ring->fd().get());
    REQUIRE(peer.take_offer());
    CHECK(peer.receive_past_heartbeats().count == 1);
    f(peer, *ring);
    peer.ring();
    const auto why = reason();
    return why;
  };
  CHECK_THAT(with_ring([](RawPeer&, SharedRing& r) { r.memory().control->tail = 1 << 20; }),
             Contains("the writer of a ring of 65536 bytes says that 1048576 wait"));
  CHECK_THAT(with_ring([](RawPeer&, SharedRing& r) {
               RingWriter writer(r.memory());
               REQUIRE(write(writer, std::vector<std::byte>(64, std::byte{1})));
             }),
             Contains("bytes that are no frame"));
  CHECK_THAT(with_ring([](RawPeer&, SharedRing& r) {
               RingWriter writer(r.memory());
               REQUIRE(write(writer, goodbye_frame("by the wrong way")));
             }),
             Contains("something other than a message in a ring"));
  CHECK_THAT(with_ring([](RawPeer& p, SharedRing&) { p.send(frame_of(message(5), 5)); }),
             Contains("message number 5 came in place of 0"));
  std::mt19937_64 random(3);
  for (int i = 0; i < 30; ++i)
    with_ring([&](RawPeer& p, SharedRing& r) {
      auto* word = reinterpret_cast<uint64_t*>(r.memory().data);
      for (size_t n = 0; n < r.memory().capacity / 8; ++n) word[n] = random();
      const auto prefix = encode_prefix(
          {FrameKind::message, static_cast<uint32_t>(random() % 40), static_cast<uint32_t>(random() % 3), 0});
      std::memcpy(r.memory().data, prefix.data(), prefix.size());
      r.memory().control->tail = random() % 2 ? r.memory().capacity : random();
      p.ring();
      p.close();
    });

  RawPeer peer(server.listener->address());
  const auto ring = peer.take_offer();
  peer.answer(true);
  const auto connection = server.connection(closed);
  ring->memory().control->head = 12345678;  // never written
  try {
    for (int i = 0; i < 100000; ++i) connection->send(message(1, 10000));
    FAIL("nobody noticed");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::disconnected);
  }
  CHECK_THAT(reason(), Contains("misuses the ring") && Contains("the reader of a ring says"));
}

TEST_CASE("large and small messages of one sender keep their order over a ring that is often full") {
  SocketLimits small;
  small.ring_bytes = 1 << 14;
  Recorder left, right;
  auto a = transport(left, "w1", small), b = transport(right, "w2", small);
  const auto listener = b->listen(fresh_address());
  const auto link = a->connect(listener->address()).get();
  std::mt19937 random(5);
  std::vector<size_t> sizes;
  for (uint64_t i = 0; i < 3000; ++i) {
    sizes.push_back(random() % 20 == 0 ? random() % 200000 : random() % 300);
    link->send(message(i, sizes.back()));
  }
  right.wait_messages(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    REQUIRE(right.messages[i].header[0] == i);
    REQUIRE(right.messages[i].buffer_bytes() == sizes[i]);
  }
}
