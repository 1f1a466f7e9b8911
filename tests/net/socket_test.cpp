// Sockets: what two honest transports do with each other, and how links end.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>

#include "tests/net/socket_support.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using Catch::Contains;
using troupe::internal::Descriptor;

namespace {

// Two transports with a connection between them. `left` opened it.
struct Pair {
  explicit Pair(const std::string& address, const SocketLimits& limits = {},
                const SocketLimits& left_limits = {}) {
    prepare(limits, left_limits, address);
  }
  Pair(const std::string& address, std::function<void(Connection&, Message&)> handler,
       const SocketLimits& limits = {}, const SocketLimits& left_limits = {}) {
    right_events.handler = std::move(handler);
    prepare(limits, left_limits, address);
  }
  void prepare(const SocketLimits& limits, const SocketLimits& left_limits, const std::string& address) {
    left = transport(left_events, "w1", left_limits);
    right = transport(right_events, "w2", limits);
    listener = right->listen(address);
    to_right = left->connect(listener->address()).get();
    right_events.wait_accepted(1);
    to_left = right_events.accepted[0];
  }
  Recorder left_events, right_events;
  std::unique_ptr<Transport> left, right;
  std::unique_ptr<Listener> listener;
  std::shared_ptr<Connection> to_left, to_right;
};

std::string path_in_tmp(const char* name) {
  return "/tmp/troupe-socket-test-" + std::to_string(getpid()) + "-" + name;
}

SocketLimits quick() {
  SocketLimits l;
  l.heartbeat = std::chrono::milliseconds(50);
  l.dead_after = std::chrono::seconds(1);
  return l;
}

std::string child_address() {
  const char* address = std::getenv("TROUPE_TEST_ADDRESS");
  REQUIRE(address);
  return address;
}

}  // namespace

TEST_CASE("both ends know each other, over every kind of address") {
  const auto path = path_in_tmp("kinds");
  for (const auto& address : {fresh_address(), "unix:" + path, std::string("tcp:127.0.0.1:0"),
                              std::string("tcp:[::1]:0"), std::string("tcp:localhost:0")}) {
    CAPTURE(address);
    Pair p(address);
    CHECK(p.to_right->peer().name == "w2");
    CHECK(p.to_left->peer().name == "w1");
    CHECK(p.to_left->peer().id == 1);
    CHECK(p.to_right->address() == p.listener->address());
    // A name is listened on, and told to others, as the address that it resolved to.
    const auto resolved = p.listener->address();
    if (address.starts_with("tcp:localhost:"))
      CHECK((resolved.starts_with("tcp:127.0.0.1:") || resolved.starts_with("tcp:[::1]:")));
    else
      CHECK(resolved.starts_with(address.substr(0, address.size() - 1)));
    p.to_right->send(message(5, 10));
    p.right_events.wait_messages(1);
    CHECK(p.right_events.messages[0].header == std::vector<uint64_t>{5});
  }
  CHECK(access(path.c_str(), F_OK) != 0);
}

TEST_CASE("64 MiB arrive intact, in a storage of exactly that size") {
  for (const auto& address : {fresh_address(), std::string("tcp:127.0.0.1:0")}) {
    Pair p(address);
    constexpr size_t kBytes = size_t{64} << 20;
    auto sent = message(7, kBytes);
    sent.buffers.push_back({Storage::allocate(100), 10, 33});
    std::memset(sent.buffers[1].storage->data(), 1, 100);
    p.to_right->send(sent);
    p.right_events.wait_messages(1);
    const auto& got = p.right_events.messages[0];
    REQUIRE(got.buffers.size() == 2);
    CHECK(got.buffers[0].storage->size() == kBytes);
    CHECK(got.buffers[1].storage->size() == 33);
    size_t wrong = 0;
    for (size_t i = 0; i < kBytes; i += 4096) wrong += got.buffers[0].data()[i] != sent.buffers[0].data()[i];
    CHECK(wrong == 0);
    CHECK(std::memcmp(got.buffers[1].data(), sent.buffers[1].data(), 33) == 0);
  }
}

TEST_CASE("many threads send on one connection, each in its own order, in both directions") {
  constexpr uint64_t kThreads = 4, kEach = 500;
  for (const auto& address : {fresh_address(), std::string("tcp:127.0.0.1:0")}) {
    Pair p(address);
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (uint64_t i = 0; i < kEach; ++i) {
          (t % 2 ? p.to_left : p.to_right)->send(message(t << 32 | i, i % 50 == 0 ? 300000 : i % 3));
        }
      });
    for (auto& t : threads) t.join();
    p.left_events.wait_messages(kThreads / 2 * kEach);
    p.right_events.wait_messages(kThreads / 2 * kEach);
    for (auto* events : {&p.left_events, &p.right_events}) {
      uint64_t next[kThreads] = {};
      for (const auto& m : events->messages) {
        const uint64_t t = m.header[0] >> 32, i = m.header[0] & 0xffffffff;
        REQUIRE(i == next[t]++);
        REQUIRE(m.buffer_bytes() == (i % 50 == 0 ? 300000 : i % 3));
        if (!m.buffers.empty()) REQUIRE(m.buffers[0].data()[0] == static_cast<std::byte>(m.header[0]));
      }
    }
  }
}

TEST_CASE("a slow reader makes send refuse, and what was accepted arrives") {
  SocketLimits small;
  small.queue_bytes = 1 << 20;
  std::promise<void> go;
  auto gate = go.get_future().share();
  Pair p(
      fresh_address(), [gate](Connection&, Message&) { gate.wait(); }, {}, small);
  uint64_t accepted = 0;
  std::string refusal;
  while (refusal.empty()) {
    try {
      p.to_right->send(message(accepted, 100000));
      ++accepted;
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::overloaded);
      refusal = e.what();
    }
  }
  CHECK_THAT(refusal, Contains("wait to be sent to worker w2") && Contains("limit of 1048576"));
  CHECK(p.to_right->queued_bytes() > small.queue_bytes / 2);
  CHECK(p.to_right->queued_bytes() <= small.queue_bytes);
  const auto writable = p.to_right->writable();
  CHECK(!writable.is_ready());
  go.set_value();
  writable.get();
  CHECK(p.to_right->queued_bytes() <= small.queue_bytes / 2);
  p.to_right->send(message(accepted++, 5 << 20));  // one message always fits, once the queue is short
  p.right_events.wait_messages(accepted);
  for (uint64_t i = 0; i < accepted; ++i) REQUIRE(p.right_events.messages[i].header[0] == i);
}

TEST_CASE("a callback that takes longer than dead_after kills no connection") {
  std::promise<void> entered;
  Pair p(
      fresh_address(),
      [&, first = true](Connection&, Message&) mutable {
        if (!std::exchange(first, false)) return;
        entered.set_value();
        std::this_thread::sleep_for(quick().dead_after * 5 / 2);  // this is the work
      },
      quick(), quick());
  p.to_right->send(message(1));
  entered.get_future().wait();
  p.to_right->send(message(2, 3 << 20));  // and more than the socket holds waits meanwhile
  p.right_events.wait_messages(2);
  p.to_left->send(message(3));
  p.left_events.wait_messages(1);
  CHECK(p.left_events.closed.empty());
  CHECK(p.right_events.closed.empty());
}

TEST_CASE("close tells the other side why, after what was sent before") {
  Pair p(fresh_address());
  p.to_right->send(message(1, 4 << 20));
  p.to_right->close("training\nis over");
  CHECK_THROWS_WITH(p.to_right->send(message(2)), Contains("closed here: training"));
  CHECK_THROWS_AS(p.to_right->writable().get(), Error);
  p.left_events.wait_closed(1);
  p.right_events.wait_closed(1);
  CHECK(p.right_events.messages.size() == 1);
  CHECK(p.right_events.closed[0].kind() == ErrorKind::disconnected);
  CHECK(p.right_events.closed[0].worker() == "w1");
  CHECK_THAT(p.right_events.closed[0].message(),
             Contains("worker w1 (unix:@") && Contains("closed the connection: training is over"));
  CHECK_THAT(p.left_events.closed[0].message(), Contains("worker w2") && Contains("closed here: training"));
  CHECK_THROWS_WITH(p.to_left->send(message(3)), Contains("closed the connection: training is over"));
  p.to_left->close("again");
}

TEST_CASE("a reader that never reads delays close by no more than its second") {
  std::promise<void> go;
  auto gate = go.get_future().share();
  SocketLimits sockets;
  sockets.arena_bytes = 0;  // the bytes themselves wait to be written
  Pair p(
      fresh_address(), [gate](Connection&, Message&) { gate.wait(); }, {}, sockets);
  for (int i = 0; i < 3; ++i) p.to_right->send(message(static_cast<uint64_t>(i), 4 << 20));
  p.to_right->close("no more");
  p.left_events.wait_closed(1);
  CHECK(p.to_right->queued_bytes() == 0);
  go.set_value();
  p.right_events.wait_closed(1);
  CHECK(p.right_events.messages.size() < 3);
}

TEST_CASE("destroying a transport closes its connections, stops its callbacks, and fails what connects") {
  auto p = std::make_unique<Pair>(fresh_address());
  const auto to_nobody = p->left->connect("unix:@nobody-listens-here", true);
  const auto kept = p->to_right;
  p->left.reset();
  REQUIRE(to_nobody.wait_for(kForever));
  CHECK_THROWS_WITH(to_nobody.get(), Contains("the transport was shut down"));
  CHECK(p->left_events.closed.size() == 1);
  CHECK_THROWS_AS(kept->send(message(1)), Error);
  p->right_events.wait_closed(1);
  CHECK_THAT(p->right_events.closed[0].message(), Contains("the transport was shut down"));
}

TEST_CASE("connect waits for a listener that comes later, if asked to") {
  Recorder events, other;
  const auto address = fresh_address();
  auto a = transport(events, "w1"), b = transport(other, "w2");
  try {
    a->connect(address).get();
    FAIL("connected to nobody");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::disconnected);
    CHECK_THAT(e.message(), Contains("nobody answers at " + address) && Contains("Connection refused"));
  }
  const auto later = a->connect(address, true);
  CHECK(!later.is_ready());
  const auto listener = b->listen(address);
  CHECK(later.get()->peer().name == "w2");

  SocketLimits hurry;
  hurry.connect = std::chrono::milliseconds(100);
  auto c = transport(events, "w3", hurry);
  CHECK_THROWS_WITH(c->connect("unix:@nobody-listens-here", true).get(), Contains("tried for up to 0.1 s"));
  CHECK_THROWS_WITH(c->connect("tcp:host.invalid:80").get(), Contains("tcp:host.invalid:80"));
  CHECK_THROWS_WITH(c->connect("tcp:localhost:0").get(), Contains("port 0 is for listening"));
  CHECK_THROWS_WITH(c->connect("bogus").get(), Contains("bad address"));
}

TEST_CASE("an address in use is refused by name, and free again once its listener is gone") {
  Recorder events;
  auto t = transport(events, "w1");
  const auto path = path_in_tmp("in-use");
  for (const auto& address : {fresh_address(), "unix:" + path, std::string("tcp:127.0.0.1:0")}) {
    auto first = t->listen(address);
    const auto real = first->address();
    try {
      (void)t->listen(real);
      FAIL("listened twice on " << real);
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::failed);
      CHECK_THAT(e.message(), Contains("cannot listen on " + real) && Contains("in use"));
    }
    first.reset();
    CHECK(t->listen(real)->address() == real);
  }
  CHECK(access(path.c_str(), F_OK) != 0);
}

TEST_CASE("a socket file left by a dead process is replaced, any other file is not") {
  Recorder events;
  auto t = transport(events, "w1");
  const auto path = path_in_tmp("dead");
  {
    Address actual;
    const Descriptor dead =
        listen_on(parse_address("unix:" + path), actual, kForever);  // closed without being unlinked
  }
  REQUIRE(access(path.c_str(), F_OK) == 0);
  CHECK(t->listen("unix:" + path));
  const Descriptor file(::open(path.c_str(), O_CREAT | O_WRONLY, 0600));
  CHECK_THROWS_WITH(t->listen("unix:" + path), Contains("is no socket"));
  CHECK(access(path.c_str(), F_OK) == 0);
  ::unlink(path.c_str());
  CHECK_THROWS_WITH(t->listen("unix:/no/such/folder/x"), Contains("/no/such/folder/x"));
}

TEST_CASE("a child connects and waits", "[.]") {
  Recorder events;
  auto t = transport(events, "w8", quick());
  const auto c = t->connect(child_address(), true).get();
  c->send(message(1));
  events.wait_closed(1);
}

TEST_CASE("the death of a peer's process is seen at once", "[process]") {
  for (const auto& address : {fresh_address(), std::string("tcp:127.0.0.1:0")}) {
    Recorder events;
    SocketLimits patient;  // so that no silence explains it
    patient.dead_after = std::chrono::hours(1);
    auto t = transport(events, "w1", patient);
    const auto listener = t->listen(address);
    Child child("a child connects and waits", listener->address());
    events.wait_messages(1);
    child.signal(SIGKILL);
    events.wait_closed(1);
    CHECK(events.closed[0].kind() == ErrorKind::disconnected);
    CHECK(events.closed[0].worker() == "w8");
    CHECK_THAT(events.closed[0].message(), Contains("w8"));
  }
}

TEST_CASE("a peer that was stopped is found silent", "[process]") {
  Recorder events;
  auto t = transport(events, "w1", quick());
  const auto listener = t->listen(fresh_address());
  Child child("a child connects and waits", listener->address());
  events.wait_messages(1);
  child.signal(SIGSTOP);
  events.wait_closed(1);
  CHECK(events.closed[0].kind() == ErrorKind::disconnected);
  CHECK_THAT(events.closed[0].message(),
             Contains("worker w8 (unix:@") && Contains("has been silent for 1 s"));
}

TEST_CASE("running out of descriptors delays newcomers and harms nobody") {
  LogCapture lines;
  SocketLimits limits;
  // No shared memory: its descriptors are closed when it is mapped, at any moment.
  limits.ring_bytes = limits.arena_bytes = 0;
  Pair p(fresh_address(), limits, limits);
  p.listener.reset();
  const auto address = fresh_address();
  p.listener = p.right->listen(address);
  p.to_right->send(message(1));  // the sanitizer looks at an object by a pipe, the first time it is called
  p.right_events.wait_messages(1);
  const auto to = resolve_numeric(parse_address(address)).found.at(0);
  const Descriptor newcomer(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit few = before;
  few.rlim_cur = 300;
  setrlimit(RLIMIT_NOFILE, &few);
  std::vector<Descriptor> hogs;
  for (int fd; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) hogs.emplace_back(fd);
  const int connected = ::connect(newcomer.get(), to.get(), to.size);
  lines.wait_for("cannot accept connections on " + address);
  p.to_right->send(message(1));
  p.right_events.wait_messages(2);
  hogs.clear();
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK(connected == 0);
  CHECK(p.left->connect(address).get()->peer().name == "w2");
  CHECK(lines.count("cannot accept") <= 11);
}
