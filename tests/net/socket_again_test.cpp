// TCP connections that are reset, cut short and silenced, and go on.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <thread>

#include "tests/net/socket_support.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;

namespace {

uint16_t port_of(const sockaddr_storage& a) {
  return a.ss_family == AF_INET ? ntohs(reinterpret_cast<const sockaddr_in&>(a).sin_port) : 0;
}

// Breaks all TCP connections of this process, at both ends, as a reset from outside does, or by ends of
// streams.
int break_connections(bool reset) {
  int broken = 0;
  std::vector<int> descriptors;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    descriptors.push_back(std::stoi(entry.path().filename()));
  for (const int fd : descriptors) {
    sockaddr_storage other{};
    socklen_t size = sizeof other;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&other), &size) != 0 || port_of(other) == 0) continue;
    const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
    // The system is called directly: ThreadSanitizer takes the library's for a write to the descriptor.
    const long done = reset ? ::syscall(SYS_connect, fd, &nobody, sizeof nobody) : ::shutdown(fd, SHUT_RDWR);
    broken += done == 0;
  }
  return broken;
}

SocketLimits patient() {
  SocketLimits limits;
  limits.dead_after = std::chrono::seconds(30);  // longer than what a busy machine needs to come back
  limits.heartbeat = std::chrono::milliseconds(20);
  return limits;
}

// Two that listen by TCP, and are connected.
struct Linked {
  explicit Linked(const SocketLimits& limits = patient(), Encryption encryption = Encryption::off) {
    a = transport(left, "w1", limits, kToken, encryption);
    b = transport(right, "w2", limits, kToken, encryption);
    beside = a->listen("tcp:127.0.0.1:0");
    listener = b->listen("tcp:127.0.0.1:0");
    there = a->connect(listener->address()).get();
    right.wait_accepted(1);
    back = right.accepted[0];
    back->send(message(1));
    left.wait_messages(1);
    there->send(message(1));
    right.wait_messages(1);  // and with it where the other end listens
  }
  Recorder left, right;
  std::unique_ptr<Transport> a, b;
  std::unique_ptr<Listener> beside, listener;
  std::shared_ptr<Connection> there, back;
};

// Sends messages of many sizes, so many at least, and breaks connections all the while, each time once `may`
// says so: each arrives once, in order, whole.
void come_through(
    Linked& two, int messages, int breaks, const std::function<bool(int)>& may = [](int) { return true; }) {
  std::atomic<int> got[2] = {}, sent[2] = {};
  std::atomic<bool> wrong{false}, over{false};
  const auto sizes = [](uint64_t n) { return n % 7 == 0 ? size_t{300000} + n : n % 3 == 0 ? n * 11 : 0; };
  const auto check = [&](int side) {
    return [&, side](Connection&, Message& m) {
      const auto n = static_cast<uint64_t>(got[side].load());
      const Message expected = message(n, sizes(n));
      if (m.header != expected.header || m.buffer_bytes() != expected.buffer_bytes()) wrong = true;
      for (size_t i = 0; i < m.buffer_bytes(); i += 4096)
        if (m.buffers[0].data()[i] != expected.buffers[0].data()[i]) wrong = true;
      m.buffers.clear();
      got[side]++;
    };
  };
  two.left.handler = check(0), two.right.handler = check(1);
  std::vector<std::thread> senders;
  for (const int to : {0, 1})
    senders.emplace_back([&, to] {
      const auto& c = to == 1 ? two.there : two.back;
      for (int n = 0; n < messages || !over; ++n) {
        while (c->queued_bytes() > (8 << 20)) std::this_thread::yield();
        c->send(message(static_cast<uint64_t>(n), sizes(static_cast<uint64_t>(n))));
        sent[to]++;
      }
    });
  for (int n = 1; n <= breaks; ++n) {
    two.right.wait([&] { return got[1] >= messages * n / (breaks + 1) && may(n); });
    for (int broken = 0; broken == 0;) broken = break_connections(n % 2 == 0);  // it may be broken already
  }
  over = true;
  for (auto& t : senders) t.join();
  two.right.wait([&] { return got[1] == sent[1]; });
  two.left.wait([&] { return got[0] == sent[0]; });
  CHECK_FALSE(wrong);
  for (Recorder* side : {&two.left, &two.right}) side->with([&] { CHECK(side->closed.empty()); });
}

}  // namespace

TEST_CASE("messages come through connections that break again and again, once and in order", "[again]") {
  Linked two;
  come_through(two, 700, 12);
}

TEST_CASE("encrypted messages come through connections that break again and again", "[again]") {
  Linked two(patient(), Encryption::always);
  come_through(two, 700, 12);
}

TEST_CASE("messages come through several sockets in turns that break again and again", "[again]") {
  for (const Encryption encryption : {Encryption::off, Encryption::always}) {
    LogCapture lines;
    SocketLimits limits = patient();
    limits.long_way = Duration::zero();
    limits.lanes = 3;
    limits.bulk_bytes = 100'000;
    Linked two(limits, encryption);
    come_through(two, 700, 12, [&](int breaks) {
      const auto times = static_cast<size_t>(breaks);
      return lines.count("goes on by more sockets to worker w1") >= times &&
             lines.count("goes on by more sockets to worker w2") >= times;
    });
  }
}

TEST_CASE("messages come through where few bytes may be unacknowledged", "[again]") {
  SocketLimits limits = patient();
  limits.unacknowledged_bytes = 1;
  Linked two(limits);
  come_through(two, 60, 6);
}

TEST_CASE("who says goodbye while a connection is broken, or has forgotten it, is lost at once", "[again]") {
  SocketLimits limits = patient();
  limits.dead_after = std::chrono::minutes(10);  // silence tells nothing here
  Linked two(limits);
  two.back->send(message(1));
  two.left.wait_messages(1);
  two.b.reset();
  two.left.wait_closed(1);
  CHECK(two.left.closed[0].kind() == ErrorKind::disconnected);
}

TEST_CASE("a child listens and connects and answers", "[.]") {
  Recorder events;
  events.handler = [](Connection& c, Message&) { c.send(message(2)); };
  auto self = transport(events, "w1", patient());
  const auto listener = self->listen("tcp:127.0.0.1:0");
  const auto there = self->connect(std::getenv("TROUPE_TEST_ADDRESS")).get();
  there->send(message(1));
  events.wait_closed(1);
}

TEST_CASE("a process that is killed is noticed at once by those that it connected to", "[again]") {
  SocketLimits limits = patient();
  limits.dead_after = std::chrono::minutes(10);
  Recorder events;
  const auto self = transport(events, "w2", limits);
  const auto listener = self->listen("tcp:127.0.0.1:0");
  Child child("a child listens and connects and answers", listener->address());
  events.wait_messages(1);
  events.accepted[0]->send(message(1));
  events.wait_messages(2);  // before it, its port has come
  child.signal(SIGKILL);
  events.wait_closed(1);
  CHECK(events.closed[0].worker() == "w1");
}
