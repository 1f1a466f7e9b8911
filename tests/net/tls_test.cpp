// Links by TLS between honest ends: what goes through them, and ends that are set differently.
#include <sys/socket.h>

#include "net/socket/stream/stream.h"
#include "tests/contract/transport_support.h"
#include "tests/net/socket_support.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using Catch::Contains;
using troupe::internal::Descriptor;

namespace {

const std::string kLoopback = "tcp:127.0.0.1:0";

// The reason for which `connecting` fails; empty: it does not.
std::string refusal_of(const Future<std::shared_ptr<Connection>>& connecting) {
  REQUIRE(connecting.wait_for(kForever));
  try {
    (void)connecting.get();
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::invalid);
    return e.message();
  }
  return "";
}

struct Ends {
  Ends(Encryption of_connector, Encryption of_listener, const std::string& address = kLoopback) {
    left = transport(left_events, "w1", {}, kToken, of_connector);
    right = transport(right_events, "w2", {}, kToken, of_listener);
    listener = right->listen(address);
    connecting = left->connect(listener->address());
  }
  Recorder left_events, right_events;
  std::unique_ptr<Transport> left, right;
  std::unique_ptr<Listener> listener;
  Future<std::shared_ptr<Connection>> connecting;
};

// Both ends of a link, without a transport.
struct Bare {
  explicit Bare(uint64_t records_per_key) : keys(kToken, Standing::member, 7, {}, records_per_key) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    streams[0] = Stream(Descriptor(ends[0])), streams[1] = Stream(Descriptor(ends[1]));
    TlsLink& one = streams[0].secure(keys, TlsLink::Side::connector);
    TlsLink& other = streams[1].secure(keys, TlsLink::Side::listener);
    auto first = TlsLink::Step::waiting, second = first;
    for (int i = 0; i < 10; ++i) {
      if (first == TlsLink::Step::waiting) first = one.shake_hands();
      if (second == TlsLink::Step::waiting) second = other.shake_hands();
    }
    REQUIRE(first == TlsLink::Step::done);
    REQUIRE(second == TlsLink::Step::done);
  }
  ssize_t send(int from, std::vector<iovec> parts) {
    msghdr m{};
    m.msg_iov = parts.data(), m.msg_iovlen = parts.size();
    return streams[from].send(m);
  }
  ssize_t receive(int at, std::span<std::byte> to) {
    iovec part{to.data(), to.size()};
    msghdr m{};
    m.msg_iov = &part, m.msg_iovlen = 1;
    return streams[at].receive(m);
  }
  TlsContext keys;
  Stream streams[2];
};

}  // namespace

TEST_CASE("tensors of all sizes go by TLS, many parts in one message, both ways at once") {
  contract::Recorder left_events, right_events;
  const auto encrypted = [](const std::string& name, WorkerId id, Events& events) {
    SocketOptions options{{id, name}, kToken, {}};
    options.encryption = Encryption::always;
    return make_socket_transport(std::move(options), events);
  };
  auto left = encrypted("w1", 1, left_events), right = encrypted("w2", 2, right_events);
  const auto listener = right->listen(kLoopback);
  const auto link = left->connect(listener->address()).get();
  const auto back = right_events.accepted();
  REQUIRE(back);
  const std::vector<std::vector<size_t>> messages = {{size_t{64} << 20},
                                                     {},
                                                     {1, 0, 16383, 16384, 16385, 3},
                                                     std::vector<size_t>(400, 100),
                                                     {(3 << 20) + 7, 1, 65536}};
  std::thread other([&] {
    for (size_t i = 0; i < messages.size(); ++i) back->send(contract::make_message(2, i, messages[i]));
  });
  for (size_t i = 0; i < messages.size(); ++i) link->send(contract::make_message(1, i, messages[i]));
  other.join();
  CHECK(right_events.wait_messages(messages.size()));
  CHECK(left_events.wait_messages(messages.size()));
  CHECK(left_events.violations() == std::vector<std::string>{});  // none is damaged
  CHECK(right_events.violations() == std::vector<std::string>{});
  left.reset(), right.reset();
}

TEST_CASE("a full socket keeps what is encrypted, and loses and repeats nothing") {
  Bare link(1000);
  std::vector<std::byte> sent(4 << 20), got;
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7 + (i >> 9));
  std::vector<std::byte> room(10'000);
  size_t done = 0;
  bool was_full = false;
  while (got.size() < sent.size()) {
    // Parts that are cut differently each time, but always begin with what is not sent yet.
    const size_t first = std::min<size_t>(sent.size() - done, 1 + done % 30'000);
    if (done < sent.size()) {
      const ssize_t n = link.send(0, {{sent.data() + done, first},
                                      {sent.data() + done, 0},
                                      {sent.data() + done + first, sent.size() - done - first}});
      was_full |= n < 0;
      if (n < 0) REQUIRE(errno == EAGAIN);
      if (n > 0) done += static_cast<size_t>(n);
    }
    const ssize_t n = link.receive(1, room);
    if (n < 0) REQUIRE(errno == EAGAIN);
    if (n > 0) got.insert(got.end(), room.begin(), room.begin() + n);
  }
  CHECK(was_full);
  CHECK(done == sent.size());
  CHECK(got == sent);
}

TEST_CASE("a link changes its keys after so many records") {
  Bare link(3);
  for (int i = 0; i < 100; ++i)
    for (const int from : {0, 1}) {
      const std::string text = "record " + std::to_string(i);
      REQUIRE(link.send(from, {{const_cast<char*>(text.data()), text.size()}}) ==
              static_cast<ssize_t>(text.size()));
      std::array<std::byte, 100> to;
      const ssize_t n = link.receive(1 - from, to);
      REQUIRE(n == static_cast<ssize_t>(text.size()));
      CHECK(std::memcmp(to.data(), text.data(), text.size()) == 0);
    }
}

TEST_CASE("who encrypts and who does not refuse each other, each saying what to set") {
  {
    LogCapture lines;
    Ends ends(Encryption::off, Encryption::always);
    const auto why = refusal_of(ends.connecting);
    CHECK(why == "[net] " + ends.listener->address() + " " + kSpeaksTlsAlone);
    lines.wait_for(std::string("it ") + kSpeaksPlainAlone);
    CHECK(ends.right_events.accepted.empty());
  }
  {
    LogCapture lines;
    Ends ends(Encryption::always, Encryption::off);
    const auto why = refusal_of(ends.connecting);
    CHECK(why == "[net] " + ends.listener->address() + " " + kSpeaksPlainAlone);
    lines.wait_for(std::string("it ") + kSpeaksTlsAlone);
    CHECK(ends.right_events.accepted.empty());
  }
  for (const char* text : {kSpeaksPlainAlone, kSpeaksTlsAlone})
    CHECK_THAT(text, Contains("the same TROUPE_TLS"));
}

TEST_CASE("within a host TLS is for who wants it always") {
  using enum Encryption;
  for (const auto& [connector, listener] :
       {std::pair(off, between_hosts), std::pair(between_hosts, off), std::pair(between_hosts, between_hosts),
        std::pair(always, between_hosts), std::pair(always, always)}) {
    INFO(static_cast<int>(connector) << " to " << static_cast<int>(listener));
    Ends ends(connector, listener);
    CHECK(refusal_of(ends.connecting) == "");
  }
  Ends strict(between_hosts, always);
  CHECK_THAT(refusal_of(strict.connecting), Contains(kSpeaksTlsAlone));
  Ends by_unix(off, always, fresh_address());
  CHECK(refusal_of(by_unix.connecting) == "");
  Ends by_v6(always, always, "tcp:[::1]:0");
  CHECK(refusal_of(by_v6.connecting) == "");
}

TEST_CASE("ends are of one host where their addresses are the same, or loopback's") {
  for (const std::string host : {"127.0.0.1", "127.0.0.2", "[::1]"}) {
    Address actual;
    const Descriptor listening = listen_on(parse_address("tcp:" + host + ":0"), actual, kForever);
    const RawClient client(actual.str());
    CHECK(is_within_host(client.fd()));
  }
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const Descriptor one(ends[0]), other(ends[1]);
  CHECK(is_within_host(one.get()));
}

TEST_CASE("by TLS, another token and another job are refused in the same words") {
  LogCapture lines;
  Recorder events, others, elsewhere;
  SocketOptions options{{2, "w2"}, kToken, {}};
  options.encryption = Encryption::always;
  options.job = "slurm-1.0";
  const auto server = make_socket_transport(options, events);
  const auto listener = server->listen(kLoopback);
  const auto stranger = transport(others, "w5", {}, "some other token, long enough", Encryption::always);
  CHECK(refusal_of(stranger->connect(listener->address(), true)) ==
        "[net] " + listener->address() + " refused the cluster token");
  lines.wait_for("it does not have the cluster token");
  options.self = {3, "w3"};
  options.job = "slurm-2.0";
  const auto neighbour = make_socket_transport(options, elsewhere);
  CHECK_THAT(refusal_of(neighbour->connect(listener->address(), true)), Contains("belongs to another job"));
  lines.wait_for("it belongs to another job");
  CHECK(events.accepted.empty());
}

TEST_CASE("a guest meets members by TLS with its pass, where guests are let in, and listens nowhere") {
  Recorder events, others;
  SocketOptions options{{2, "w2"}, kToken, {}};
  options.encryption = Encryption::always;
  options.job = "slurm-1.0";
  options.guests = true;
  const auto server = make_socket_transport(options, events);
  const auto listener = server->listen(kLoopback);
  SocketOptions of_guest{{kFirstGuest, "guest"}, guest_pass(kToken, "slurm-1.0"), {}};
  of_guest.encryption = Encryption::always;
  const auto guest = make_socket_transport(of_guest, others);
  const auto link = guest->connect(listener->address()).get();
  events.wait_accepted(1);
  CHECK(events.accepted[0]->peer().id == kFirstGuest);
  CHECK_THROWS_WITH(guest->listen(kLoopback), Contains("a guest listens nowhere"));
  // Its pass does not make a member of anybody, nor does that of another token a guest.
  for (const auto& [id, pass] : {std::pair(WorkerId{3}, of_guest.token),
                                 std::pair(kFirstGuest, guest_pass("some other token, long", "slurm-1.0"))}) {
    Recorder nothing;
    SocketOptions pretends{{id, "guest"}, pass, {}};
    pretends.encryption = Encryption::always;
    const auto stranger = make_socket_transport(pretends, nothing);
    CHECK_THAT(refusal_of(stranger->connect(listener->address())), Contains("refused the cluster token"));
  }
  // Where nobody has thought of guests, none comes in.
  LogCapture lines;
  Recorder members;
  options.guests = false;
  const auto closed = make_socket_transport(options, members);
  const auto door = closed->listen(kLoopback);
  const auto knocking = guest->connect(door->address());
  REQUIRE(knocking.wait_for(kForever));
  CHECK_FALSE(knocking.wait().ok());
  lines.wait_for("it comes as a guest, and none is let in here");
  CHECK(members.accepted.empty());
}
