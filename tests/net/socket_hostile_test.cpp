// Sockets against strangers and broken peers: refused with one line, and nobody else notices.
#include "tests/net/socket_support.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using Catch::Contains;
using troupe::internal::Descriptor;

namespace {

// A server with one honest client whose link must survive whatever the test does.
struct House {
  explicit House(const std::string& address, const SocketLimits& limits = {}) {
    server = transport(server_events, "w2", limits);
    listener = server->listen(address);
    client = transport(client_events, "w1");
    link = client->connect(listener->address()).get();
  }
  // The honest link still works, and a newcomer is let in.
  void check_undisturbed() {
    size_t before = 0;
    server_events.with([&] { before = server_events.messages.size(); });
    link->send(message(1, 1000));
    server_events.wait_messages(before + 1);
    CHECK(client->connect(listener->address()).get()->peer().name == "w2");
    CHECK(client_events.closed.empty());
  }
  Recorder server_events, client_events;
  std::unique_ptr<Transport> server, client;
  std::unique_ptr<Listener> listener;
  std::shared_ptr<Connection> link;
};

}  // namespace

TEST_CASE("garbage, other protocols and half handshakes are refused and disturb nobody") {
  for (const auto& address : {fresh_address(), std::string("tcp:127.0.0.1:0")}) {
    LogCapture lines;
    House house(address);
    RawClient http(house.listener->address());
    http.send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
    CHECK(http.closed_by_peer());
    lines.wait_for("it does not speak Troupe's protocol");
    CHECK(lines.count("refused a connection to " + house.listener->address() + " from ") == 1);

    RawClient zeros(house.listener->address());
    zeros.send(std::string(100000, '\0'));
    CHECK(zeros.closed_by_peer());

    for (const size_t n : {0, 1, 15, 16, 40, 48, 56}) {  // leaves in the middle of its hello
      RawClient half(house.listener->address());
      Handshake h(Handshake::Role::connector, kToken, {}, random_nonce(), TimePoint::max());
      const auto hello = h.take_output();
      half.send(std::span(hello).first(n));
    }
    house.check_undisturbed();
    house.server_events.wait_accepted(2);
    CHECK(house.server_events.accepted.size() == 2);
  }
}

TEST_CASE("a hundred garbage connections give a few lines and disturb nobody") {
  LogCapture lines;
  House house(fresh_address());
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 100; ++i) clients.push_back(std::make_unique<RawClient>(house.listener->address()));
  for (auto& c : clients) c->send("0123456789abcdef0123456789abcdef");
  for (auto& c : clients) CHECK(c->closed_by_peer());
  house.check_undisturbed();
  lines.wait_for("does not speak");  // the same line is counted, not repeated
  CHECK(lines.count("does not speak") < 20);
}

TEST_CASE("a peer without the token is refused on both ends") {
  LogCapture lines;
  House house(fresh_address());
  Recorder events;
  auto stranger = transport(events, "w5", {}, "some other token, long enough");
  try {
    stranger->connect(house.listener->address(), true).get();
    FAIL("let in");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK(e.message() == "[net] " + house.listener->address() + " refused the cluster token");
  }
  lines.wait_for("it does not have the cluster token");
  house.check_undisturbed();
  CHECK(events.closed.empty());
}

TEST_CASE("a peer of another version is refused on both ends, naming both versions") {
  LogCapture lines;
  House house(fresh_address());
  RawClient future(house.listener->address());
  const auto h = future.shake(kToken, kProtocolVersion + 1);
  CHECK(h.refusal() == Handshake::Refusal::version);
  const auto versions = [](uint32_t there, uint32_t here) {
    return "speaks version " + std::to_string(there) + " of the protocol, this side version " +
           std::to_string(here);
  };
  CHECK_THAT(h.text(), Contains(versions(kProtocolVersion, kProtocolVersion + 1)));
  lines.wait_for("it " + versions(kProtocolVersion + 1, kProtocolVersion));

  // And a listener of another version, for our connector.
  Address actual;
  const Descriptor old = listen_on(parse_address(fresh_address()), actual, kForever);
  const auto connecting = house.client->connect(actual.str(), true);
  Descriptor accepted;
  while (!accepted) accepted = Descriptor(::accept4(old.get(), nullptr, nullptr, SOCK_CLOEXEC));
  Handshake machine(Handshake::Role::listener, kToken, {}, random_nonce(), TimePoint::max(), 0,
                    kProtocolVersion + 1);
  while (machine.state() == Handshake::State::waiting) {
    std::array<std::byte, 16> bytes;
    const ssize_t n = ::recv(accepted.get(), bytes.data(), bytes.size(), MSG_WAITALL);
    REQUIRE(n == 16);
    machine.receive(bytes);
  }
  const auto answer = machine.take_output();
  REQUIRE(::send(accepted.get(), answer.data(), answer.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(answer.size()));
  try {
    connecting.get();
    FAIL("connected");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.message(), Contains(versions(kProtocolVersion + 1, kProtocolVersion)));
  }
  house.check_undisturbed();
}

TEST_CASE("those that dawdle in the handshake lose their place, and the deadline ends them") {
  LogCapture lines;
  SocketLimits limits;
  limits.unauthenticated = 4;
  limits.handshake = std::chrono::seconds(10);
  House house(fresh_address(), limits);
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 6; ++i) {
    slow.push_back(std::make_unique<RawClient>(house.listener->address()));
    slow.back()->send("T");
  }
  house.check_undisturbed();  // waits until the first dawdler has left, a tenth of the deadline
  CHECK(slow[0]->closed_by_peer());
  CHECK(lines.count("did not finish the handshake in time") >= 1);

  limits.handshake = std::chrono::milliseconds(100);
  Recorder events;
  auto strict = transport(events, "w3", limits);
  const auto listener = strict->listen(fresh_address());
  RawClient one(listener->address());
  one.send("TROUPE");
  CHECK(one.closed_by_peer());
}

TEST_CASE("strangers who say nothing keep no member out, however many came before it") {
  for (const auto& address : {fresh_address(), std::string("tcp:127.0.0.1:0")}) {
    LogCapture lines;
    SocketLimits limits;
    limits.handshake = std::chrono::seconds(1000);  // of which a silent one has 200 ms
    limits.connect = kForever;
    House house(address, limits);
    std::vector<std::unique_ptr<RawClient>> silent;
    for (int i = 0; i < 200; ++i)  // three times as many as there are places
      silent.push_back(std::make_unique<RawClient>(house.listener->address()));
    house.check_undisturbed();
    CHECK(silent[0]->closed_by_peer());
    lines.wait_for("it said nothing, and others wait");
    CHECK(lines.count("did not finish the handshake") == 0);
    // So many refused for one reason do not hide the one refused for another.
    RawClient other(house.listener->address());
    other.send("0123456789abcdef0123456789abcdef");
    lines.wait_for("does not speak");
  }
}

TEST_CASE("who has said more keeps its place longer while others wait") {
  LogCapture lines;
  SocketLimits limits;
  limits.unauthenticated = 3;
  limits.handshake = std::chrono::seconds(100);  // the greeted one has 10 s, the silent one 20 ms
  House house(fresh_address(), limits);
  RawClient greeted(house.listener->address()), silent(house.listener->address()),
      begun(house.listener->address());
  Handshake machine(Handshake::Role::connector, kToken, {}, random_nonce(), TimePoint::max());
  greeted.send(machine.take_output());
  CHECK(greeted.receive(1).size() == 1);  // it has been answered
  begun.send("TROUPE");
  house.check_undisturbed();
  CHECK(silent.closed_by_peer());
  lines.wait_for("said nothing, and others wait");
  CHECK(lines.count("did not finish the handshake") == 0);
}

TEST_CASE("a peer that proved the token and then breaks the framing is closed, with the reason") {
  LogCapture lines;
  SocketLimits limits;
  limits.buffer_bytes = 1000;
  limits.ring_bytes = limits.arena_bytes =
      0;  // an offer that nobody reads would make the end of a stream a reset
  House house(fresh_address(), limits);
  const auto connect = [&] {
    auto raw = std::make_unique<RawClient>(house.listener->address());
    CHECK(raw->shake().state() == Handshake::State::done);
    return raw;
  };
  auto& events = house.server_events;

  auto noisy = connect();
  noisy->send("these are not the bytes of a frame");
  CHECK(noisy->closed_by_peer());
  events.wait_closed(1);
  CHECK_THAT(events.closed[0].message(),
             Contains("worker raw9 (unix:@") && Contains("bytes that are no frame"));

  auto big = connect();
  std::vector<std::byte> frame(24);
  const auto prefix = encode_prefix({FrameKind::message, 0, 1});
  std::copy(prefix.begin(), prefix.end(), frame.begin());
  frame[18] = std::byte{1};
  big->send(frame);
  events.wait_closed(2);
  CHECK_THAT(events.closed[1].message(),
             Contains("buffer 0 of a message has 65536 bytes; the limit is 1000"));

  auto half = connect();
  half->send(std::span(frame).first(20));
  half->close();
  events.wait_closed(3);
  CHECK_THAT(events.closed[2].message(),
             Contains("worker raw9") && Contains("closed the connection in the middle of a message"));
  CHECK(events.closed[2].worker() == "raw9");
  CHECK(events.messages.empty());
  house.check_undisturbed();
}

TEST_CASE("a connection that carries heartbeats alone stays open, one that carries nothing does not") {
  SocketLimits limits;
  limits.heartbeat = std::chrono::milliseconds(20);
  limits.dead_after = std::chrono::seconds(1);
  limits.ring_bytes = limits.arena_bytes = 0;  // no offers
  Recorder events;
  auto server = transport(events, "w2", limits);
  const auto listener = server->listen(fresh_address());
  RawClient mute(listener->address());
  REQUIRE(mute.shake().state() == Handshake::State::done);
  const auto beats = mute.receive(3 * kPrefixBytes);
  REQUIRE(beats.size() == 3 * kPrefixBytes);
  CHECK(decode_prefix(std::span(beats).first<kPrefixBytes>(), limits).kind == FrameKind::heartbeat);
  events.wait_closed(1);
  CHECK_THAT(events.closed[0].message(), Contains("has been silent for 1 s"));

  // One for each of the server's, for longer than dead_after.
  RawClient alive(listener->address());
  REQUIRE(alive.shake().state() == Handshake::State::done);
  for (int i = 0; i < 80; ++i) {
    REQUIRE(alive.receive(kPrefixBytes).size() == kPrefixBytes);
    REQUIRE(alive.send(heartbeat_frame()));
  }
  alive.send(goodbye_frame("bye"));
  events.wait_closed(2);
  CHECK_THAT(events.closed[1].message(), Contains("closed the connection: bye"));
}
