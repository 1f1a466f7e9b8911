// Links by TLS with somebody on the way: who cuts, alters, repeats or pretends. Nothing wrong is delivered,
// both ends hear of it, and nothing hangs.
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/net/socket_support.h"

using namespace troupe;
using namespace troupe::internal::net;
using namespace troupe::internal::net::test;
using Catch::Contains;
using troupe::internal::Descriptor;

namespace {

const std::string kLoopback = "tcp:127.0.0.1:0";
enum Way { there = 0, back = 1 };

// The way between two hosts. `meddle` gets what passes, and how much went that way before; false: it cuts
// behind `bytes`.
class Wire {
 public:
  using Meddle = std::function<bool(Way way, size_t before, std::span<std::byte>& bytes)>;
  Wire(const std::string& to, Meddle meddle) : to_(to), meddle_(std::move(meddle)) {
    listening_ = listen_on(parse_address(kLoopback), address_, kForever);
    stop_ = Descriptor(::eventfd(0, EFD_CLOEXEC));
    thread_ = std::thread([this] { run(); });
  }
  ~Wire() {
    const uint64_t once = 1;
    CHECK(::write(stop_.get(), &once, sizeof once) == sizeof once);
    thread_.join();
  }
  std::string address() const { return address_.str(); }
  /// What has passed that way, of the last connection.
  std::vector<std::byte> passed(Way way) {
    std::lock_guard lock(mutex_);
    return passed_[way];
  }

 private:
  void run() {
    for (;;) {
      pollfd waits[] = {{stop_.get(), POLLIN, 0},
                        {listening_.get(), POLLIN, 0},
                        {ends_[0] ? ends_[0].get() : -1, POLLIN, 0},
                        {ends_[1] ? ends_[1].get() : -1, POLLIN, 0}};
      if (::poll(waits, 4, -1) < 0) continue;
      if (waits[0].revents) return;
      if (waits[1].revents) accept();
      for (const Way way : {there, back})
        if (waits[2 + way].revents && !pass(way)) break;
    }
  }
  void accept() {
    ends_[there] = Descriptor(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto to = resolve_numeric(parse_address(to_)).found.at(0);
    ends_[back] = Descriptor(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(ends_[back].get(), to.get(), to.size) != 0) return cut();
    for (const Descriptor& end : ends_) tune(end.get());
    std::lock_guard lock(mutex_);
    passed_[0].clear(), passed_[1].clear();
  }
  // From the end that `way` begins at, to the other.
  bool pass(Way way) {
    std::array<std::byte, 16384> bytes;
    const ssize_t n = ::recv(ends_[way].get(), bytes.data(), bytes.size(), 0);
    if (n <= 0) return cut(), false;
    auto some = std::span(bytes).first(static_cast<size_t>(n));
    size_t before;
    {
      std::lock_guard lock(mutex_);
      before = passed_[way].size();
      passed_[way].insert(passed_[way].end(), some.begin(), some.end());
    }
    const bool goes_on = meddle_(way, before, some);
    if (::send(ends_[1 - way].get(), some.data(), some.size(), MSG_NOSIGNAL) !=
            static_cast<ssize_t>(some.size()) ||
        !goes_on)
      return cut(), false;
    return true;
  }
  void cut() { ends_[0].reset(), ends_[1].reset(); }

  const std::string to_;
  const Meddle meddle_;
  Address address_;
  Descriptor listening_, stop_, ends_[2];
  std::mutex mutex_;
  std::vector<std::byte> passed_[2];
  std::thread thread_;
};

SocketLimits hasty() {
  SocketLimits limits;
  limits.handshake = std::chrono::milliseconds(300);
  limits.connect = std::chrono::milliseconds(400);
  limits.heartbeat = std::chrono::milliseconds(50);
  limits.dead_after = std::chrono::milliseconds(500);
  return limits;
}

// No load ends anything, and no heartbeat is counted.
SocketLimits patient() {
  SocketLimits limits;
  limits.handshake = limits.connect = limits.heartbeat = kForever, limits.dead_after = 2 * kForever;
  return limits;
}

constexpr size_t kMessages = 5, kBytes = 3000;

// Messages from w1 to w2 by a wire, and an answer.
struct Meeting {
  explicit Meeting(Wire::Meddle meddle, const SocketLimits& limits = patient()) {
    server_events.handler = [](Connection& c, Message& m) {
      if (m.header[0] == kMessages) c.send(message(100, kBytes));
    };
    server = transport(server_events, "w2", limits, kToken, Encryption::always);
    client = transport(client_events, "w1", limits, kToken, Encryption::always);
    listener = server->listen(kLoopback);
    wire = std::make_unique<Wire>(listener->address(), std::move(meddle));
    const auto connecting = client->connect(wire->address());
    REQUIRE(connecting.wait_for(kForever));
    try {
      link = connecting.get();
      for (size_t i = 1; i <= kMessages; ++i) link->send(message(i, kBytes));
    } catch (const Error& e) {
      failed = e.message();
    }
  }
  bool answered() {
    client_events.wait([&] { return !client_events.messages.empty() || !client_events.closed.empty(); });
    return client_events.closed.empty();
  }
  // Whatever has arrived is what was sent, from its beginning.
  void check_delivered() {
    server_events.with([&] {
      for (size_t i = 0; i < server_events.messages.size(); ++i) {
        const Message expected = message(i + 1, kBytes);
        REQUIRE(server_events.messages[i].header == expected.header);
        REQUIRE(server_events.messages[i].buffers.size() == 1);
        CHECK(std::memcmp(server_events.messages[i].buffers[0].data(), expected.buffers[0].data(), kBytes) ==
              0);
      }
    });
  }
  Recorder server_events, client_events;
  std::unique_ptr<Transport> server, client;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Wire> wire;
  std::shared_ptr<Connection> link;
  std::string failed;
};

bool lets_pass(Way, size_t, std::span<std::byte>) { return true; }

// How many bytes go each way in an honest meeting: with its handshake, and in all.
struct Lengths {
  size_t handshake[2], all[2];
};
Lengths lengths() {
  Lengths found{};
  Meeting honest(lets_pass);
  REQUIRE(honest.failed == "");
  REQUIRE(honest.answered());
  for (const Way way : {there, back}) found.all[way] = honest.wire->passed(way).size();
  // Behind the handshake come the messages, which are larger than their sum there, and the answer.
  found.handshake[there] = found.all[there] - kMessages * kBytes;
  found.handshake[back] = found.all[back] - kBytes;
  return found;
}

}  // namespace

TEST_CASE("nobody on the way reads what goes by TLS, nor who speaks") {
  Meeting honest(lets_pass);
  REQUIRE(honest.failed == "");
  REQUIRE(honest.answered());
  honest.check_delivered();
  for (const Way way : {there, back}) {
    const auto bytes = honest.wire->passed(way);
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    CHECK(text.find("TROUPE") == std::string::npos);               // no hello
    CHECK(text.find(std::string(64, '\0')) == std::string::npos);  // nor the zeros of a message
  }
}

TEST_CASE("a link that is cut anywhere ends on both sides, in a handshake or in the middle of a record") {
  const Lengths length = lengths();
  for (const Way way : {there, back})
    for (const size_t at : {size_t{1}, size_t{5}, length.handshake[way] / 3, length.handshake[way] * 2 / 3,
                            length.all[way] - 2000, length.all[way] - 500}) {
      INFO((way == there ? "there, byte " : "back, byte ") << at);
      Meeting cut([way, at](Way goes, size_t before, std::span<std::byte>& bytes) {
        if (goes != way || before + bytes.size() < at) return true;
        bytes = bytes.first(at - before);
        return false;
      });
      if (cut.link) {
        REQUIRE_FALSE(cut.answered());
        CHECK(cut.client_events.closed[0].kind() == ErrorKind::disconnected);
        CHECK(cut.client_events.closed[0].worker() == "w2");
      } else {
        CHECK_THAT(cut.failed, Contains(cut.wire->address()));
      }
      cut.server_events.wait(
          [&] { return cut.server_events.accepted.size() == cut.server_events.closed.size(); });
      cut.check_delivered();
    }
}

TEST_CASE("no altered bit of a handshake by TLS lets anything wrong through, or hangs") {
  const Lengths length = lengths();
  for (const Way way : {there, back})
    for (size_t at = 0; at < length.handshake[way]; at += 1 + at / 3 + 7 * (at > 20)) {
      INFO((way == there ? "there, byte " : "back, byte ") << at);
      const auto alter = [way, at](Way goes, size_t before, std::span<std::byte> bytes) {
        if (goes == way && before <= at && at < before + bytes.size()) bytes[at - before] ^= std::byte{0x10};
        return true;
      };
      Meeting altered(alter, hasty());  // a length that was altered makes a side wait
      // A few bits of the first records mean nothing: then all went well.
      if (altered.link && altered.answered()) altered.server_events.wait_messages(kMessages);
      altered.check_delivered();
    }
}

TEST_CASE("an altered record ends the link on both sides, which say so") {
  const Lengths length = lengths();
  for (const size_t from_end : {2500, 1300, 100}) {
    INFO(from_end);
    LogCapture lines;
    const size_t at = length.all[there] - from_end;
    Meeting altered([at](Way way, size_t before, std::span<std::byte> bytes) {
      if (way == there && before <= at && at < before + bytes.size()) bytes[at - before] ^= std::byte{1};
      return true;
    });
    REQUIRE(altered.link);
    REQUIRE_FALSE(altered.answered());
    altered.server_events.wait_closed(1);
    CHECK_THAT(altered.server_events.closed[0].message(), Contains("the connection to worker w1 (tcp:") &&
                                                              Contains("somebody on the way has altered it"));
    CHECK(altered.client_events.closed[0].worker() == "w2");
    CHECK(altered.server_events.messages.size() < kMessages);
    altered.check_delivered();
    lines.wait_for("somebody on the way has altered it");
  }
}

TEST_CASE("a recorded link that is played again is refused") {
  LogCapture lines;
  Meeting honest(lets_pass);
  REQUIRE(honest.failed == "");
  REQUIRE(honest.answered());
  RawClient again(honest.listener->address());
  again.send(honest.wire->passed(there));
  CHECK(again.closed_by_peer());
  lines.wait_for("it does not speak TLS as workers do");
  CHECK(honest.server_events.accepted.size() == 1);
  honest.server_events.wait_messages(kMessages);
}

TEST_CASE("garbage, plain text and half a handshake at a port of TLS disturb nobody") {
  LogCapture lines;
  Meeting honest(lets_pass);
  REQUIRE(honest.answered());
  const std::string at = honest.listener->address();
  RawClient http(at);
  http.send("GET / HTTP/1.1\r\nHost: here\r\n\r\n");
  CHECK(http.closed_by_peer());
  lines.wait_for(kSpeaksPlainAlone);
  RawClient noise(at);
  noise.send(std::string("\x16\x03\x01\x00\x20", 5) + std::string(32, 'x'));
  CHECK(noise.closed_by_peer());
  lines.wait_for("does not speak TLS as workers do");
  CHECK(honest.server_events.accepted.size() == 1);

  Recorder events;
  const auto strict = transport(events, "w3", hasty(), kToken, Encryption::always);
  const auto listener = strict->listen(kLoopback);
  RawClient slow(listener->address());
  slow.send(std::string("\x16\x03\x01", 3));
  CHECK(slow.closed_by_peer());
  lines.wait_for("did not finish the handshake in time");
  RawClient silent(listener->address());
  CHECK(silent.closed_by_peer());
  CHECK(events.accepted.empty());
}

TEST_CASE("who has said hello by TLS keeps its place longer while others wait") {
  Meeting honest(lets_pass);
  REQUIRE(honest.answered());
  const auto passed = honest.wire->passed(there);  // its first record is the hello
  REQUIRE(passed.size() > 5);
  const size_t hello = 5 + std::to_integer<size_t>(passed[3]) * 256 + std::to_integer<size_t>(passed[4]);

  LogCapture lines;
  SocketLimits limits = patient();
  limits.unauthenticated = 2;
  limits.handshake =
      std::chrono::seconds(1000);  // of which a greeted one has 100 s, one with a part of it 10 s
  Recorder server_events, events;
  const auto server = transport(server_events, "w3", limits, kToken, Encryption::always);
  const auto listener = server->listen(kLoopback);
  RawClient greeted(listener->address()), silent(listener->address());
  greeted.send(std::span(passed).first(hello));
  CHECK(greeted.receive(1).size() == 1);
  const auto client = transport(events, "w1", limits, kToken, Encryption::always);
  CHECK(client->connect(listener->address()).get()->peer().name == "w3");
  CHECK(silent.closed_by_peer());
  lines.wait_for("said nothing, and others wait");
  CHECK(lines.count("did not finish the handshake") == 0);
}

TEST_CASE("who shows a certificate in place of the key is refused") {
  // A server as of the web, with a key and a certificate that it has signed itself.
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  REQUIRE((key && certificate));
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  REQUIRE(X509_sign(certificate, key, EVP_sha256()) > 0);
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  REQUIRE(SSL_CTX_use_certificate(context, certificate) == 1);
  REQUIRE(SSL_CTX_use_PrivateKey(context, key) == 1);

  Address address;
  const Descriptor listening = listen_on(parse_address(kLoopback), address, kForever);
  Recorder events;
  const auto client = transport(events, "w1", {}, kToken, Encryption::always);
  const auto connecting = client->connect(address.str());
  Descriptor accepted;
  while (!accepted) accepted = Descriptor(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  SSL* link = SSL_new(context);
  SSL_set_fd(link, accepted.get());
  CHECK(SSL_accept(link) != 1);
  REQUIRE(connecting.wait_for(kForever));
  try {
    (void)connecting.get();
    FAIL("let in");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.message(),
               Contains(address.str() + " shows a certificate, and this side goes by the token's key: "));
  }
  SSL_free(link);
  SSL_CTX_free(context);
  X509_free(certificate);
  EVP_PKEY_free(key);
}
