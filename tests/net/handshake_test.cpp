// The handshake as a pure machine: honest ends meet, everybody else is refused.
#include "net/protocol/handshake.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <optional>

using namespace troupe;
using namespace troupe::internal::net;
using Role = Handshake::Role;
using State = Handshake::State;
using Refusal = Handshake::Refusal;

namespace {

const std::string kShared = "a token of the cluster";
const TimePoint kDeadline{Duration(1000)};

Nonce nonce_of(int seed) {
  Nonce n;
  for (size_t i = 0; i < n.size(); ++i) n[i] = static_cast<std::byte>(static_cast<size_t>(seed) * 17 + i);
  return n;
}

Handshake connector(const std::string& token = kShared, uint32_t version = kProtocolVersion) {
  return Handshake(Role::connector, token, {3, "w3"}, nonce_of(1), kDeadline, 0, version);
}
Handshake listener(const std::string& token = kShared, uint32_t version = kProtocolVersion) {
  return Handshake(Role::listener, token, {7, "w7"}, nonce_of(2), kDeadline, 0, version);
}

// Gives all of `bytes` that `to` still wants.
void give(Handshake& to, std::span<const std::byte> bytes) {
  while (!bytes.empty() && to.state() == State::waiting) {
    const size_t n = std::min(bytes.size(), to.wanted());
    to.receive(bytes.first(n));
    bytes = bytes.subspan(n);
  }
}

struct Flip {
  int message;  // counted over both directions
  size_t byte;
  std::byte mask;
};

// Runs both ends against each other; returns the sizes of the messages that were exchanged.
std::vector<size_t> meet(Handshake& a, Handshake& b, std::optional<Flip> flip = {}) {
  std::vector<size_t> sizes;
  Handshake* ends[] = {&a, &b};
  for (int silent = 0, turn = 0; silent < 2; turn ^= 1) {
    auto out = ends[turn]->take_output();
    silent = out.empty() ? silent + 1 : 0;
    if (out.empty()) continue;
    if (flip && flip->message == static_cast<int>(sizes.size())) out[flip->byte] ^= flip->mask;
    sizes.push_back(out.size());
    give(*ends[turn ^ 1], out);
  }
  return sizes;
}

}  // namespace

TEST_CASE("two ends with the same token learn who the other is") {
  auto a = connector(), b = listener();
  CHECK(meet(a, b) == std::vector<size_t>{56, 88, 332, 332});
  REQUIRE(a.state() == State::done);
  REQUIRE(b.state() == State::done);
  CHECK(a.peer().id == 7);
  CHECK(a.peer().name == "w7");
  CHECK(b.peer().id == 3);
  CHECK(b.peer().name == "w3");
  CHECK(a.wanted() == 0);
}

TEST_CASE("the longest and the empty name pass the handshake") {
  for (const auto& name : {std::string(), std::string(255, 'n')}) {
    Handshake a(Role::connector, kShared, {kNoWorker, name}, nonce_of(1), kDeadline);
    auto b = listener();
    meet(a, b);
    REQUIRE(b.state() == State::done);
    CHECK(b.peer().name == name);
    CHECK(b.peer().id == kNoWorker);
  }
}

TEST_CASE("another token is refused on both ends, whoever has it") {
  for (const bool connector_wrong : {true, false}) {
    auto a = connector(connector_wrong ? "some other token" : kShared);
    auto b = listener(connector_wrong ? kShared : "some other token");
    meet(a, b);
    CHECK(a.state() == State::refused);
    CHECK(a.refusal() == Refusal::token);
    CHECK(a.text() == "refused the cluster token");
    CHECK(b.state() == State::refused);
    CHECK(b.refusal() == Refusal::token);
    CHECK(b.text() == "does not have the cluster token");
  }
}

TEST_CASE("ends of two jobs that have one token refuse each other, and say so") {
  const auto meet_in = [](const std::string& one, const std::string& other) {
    Handshake a(Role::connector, kShared, {3, "w3"}, nonce_of(1), kDeadline, job_number(kShared, one));
    Handshake b(Role::listener, kShared, {7, "w7"}, nonce_of(2), kDeadline, job_number(kShared, other));
    meet(a, b);
    return std::pair(a, b);
  };
  const auto [a, b] = meet_in("slurm-1.0", "slurm-2.0");
  for (const Handshake* end : {&a, &b}) {
    CHECK(end->state() == State::refused);
    CHECK(end->refusal() == Refusal::job);
    CHECK(end->text() ==
          "belongs to another job, which has the same token: give each job an address of its own");
  }
  for (const auto& [one, other] :
       {std::pair("slurm-1.0", "slurm-1.0"), std::pair("", "slurm-1.0"), std::pair("slurm-1.0", "")}) {
    const auto [c, d] = meet_in(one, other);
    CHECK(c.state() == State::done);
    CHECK(d.state() == State::done);
  }
  // Without the token nobody learns of the job, nor is it what he is told.
  CHECK(job_number(kShared, "slurm-1.0") != job_number("some other token", "slurm-1.0"));
  Handshake stranger(Role::connector, "some other token", {3, "w3"}, nonce_of(1), kDeadline, 17);
  Handshake listening(Role::listener, kShared, {7, "w7"}, nonce_of(2), kDeadline, 18);
  meet(stranger, listening);
  CHECK(stranger.refusal() == Refusal::token);
  CHECK(listening.refusal() == Refusal::token);
}

TEST_CASE("other versions are refused on both ends, naming both") {
  auto a = connector(kShared, 4);
  auto b = listener(kShared, 2);
  meet(a, b);
  CHECK(a.refusal() == Refusal::version);
  const std::string advice = ": build the programs of all workers with one version of Troupe";
  CHECK(a.text() == "speaks version 2 of the protocol, this side version 4" + advice);
  CHECK(b.refusal() == Refusal::version);
  CHECK(b.text() == "speaks version 4 of the protocol, this side version 2" + advice);
}

TEST_CASE("no changed bit survives the handshake") {
  const size_t sizes[] = {56, 88, 332, 332};
  for (int message = 0; message < 4; ++message)
    for (size_t byte = 0; byte < sizes[message]; ++byte)
      for (const int bit : {0, 1, 3, 7}) {
        auto a = connector(), b = listener();
        meet(a, b, Flip{message, byte, static_cast<std::byte>(1 << bit)});
        CAPTURE(message, byte, bit);
        // The connector is the last to be convinced, and never is; the listener has finished before the last
        // message.
        CHECK(a.state() != State::done);
        if (message < 3) CHECK(b.state() != State::done);
        CHECK((a.state() == State::refused || b.state() == State::refused));
      }
}

TEST_CASE("a part of a message just waits, at every length") {
  auto a = connector(), b = listener();
  Handshake* ends[] = {&a, &b};
  for (int turn = 0; turn < 4; ++turn) {
    const auto out = ends[turn % 2]->take_output();
    auto& to = *ends[(turn + 1) % 2];
    for (size_t i = 0; i < out.size(); ++i) {
      REQUIRE(to.state() == State::waiting);
      REQUIRE(to.wanted() >= 1);
      REQUIRE(to.wanted() <= 332);
      if (i < 56 || turn > 0) CHECK(to.take_output().empty());
      to.receive(std::span(out).subspan(i, 1));
    }
  }
  CHECK(a.state() == State::done);
  CHECK(b.state() == State::done);
}

TEST_CASE("a peer that sends back what it gets is refused") {
  // A connector that hears its own hello and its own words.
  auto a = connector();
  auto echo = a.take_output();
  give(a, echo);
  CHECK(a.state() == State::waiting);  // hello and nonce, and then the proof that the mirror cannot make
  give(a, std::vector<std::byte>(32));
  CHECK(a.refusal() == Refusal::token);

  // A listener whose own proof is sent back as the connector's.
  auto b = listener();
  give(b, connector().take_output());
  const auto answer = b.take_output();
  std::vector<std::byte> forged(332);
  std::copy(answer.end() - 32, answer.end(), forged.end() - 32);
  give(b, forged);
  CHECK(b.refusal() == Refusal::token);
}

TEST_CASE("a proof from a second connection with the listener does not convince it") {
  // The attacker opens two connections to the same listener and lets one answer for the other: labels differ
  // by role.
  auto first = listener();
  Handshake second(Role::listener, kShared, {7, "w7"}, nonce_of(5), kDeadline);
  give(first, connector().take_output());
  const auto first_answer = first.take_output();
  Handshake attacker(Role::connector, "not the real token", {1, "evil"}, nonce_of(2), kDeadline);
  auto hello = attacker.take_output();
  std::copy(first_answer.begin() + 16, first_answer.begin() + 48,
            hello.begin() + 16);  // the first one's nonce
  give(second, hello);
  const auto second_answer = second.take_output();
  std::vector<std::byte> forged(332);
  std::copy(second_answer.end() - 32, second_answer.end(), forged.end() - 32);
  give(first, forged);
  CHECK(first.refusal() == Refusal::token);
}

TEST_CASE("a recorded handshake cannot be replayed") {
  auto a = connector(), b = listener();
  const auto hello = a.take_output();
  give(b, hello);
  give(a, b.take_output());
  const auto proof = a.take_output();
  give(b, proof);
  REQUIRE(b.state() == State::done);
  Handshake again(Role::listener, kShared, {7, "w7"}, nonce_of(9), kDeadline);
  give(again, hello);
  give(again, proof);
  CHECK(again.refusal() == Refusal::token);
}

TEST_CASE("other protocols are refused as soon as their first 16 bytes are there") {
  for (const std::string text :
       {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "SSH-2.0-OpenSSH_9.2p1\r\n", "TROUPE\n\n........"}) {
    auto b = listener();
    const auto bytes = std::as_bytes(std::span(text));
    give(b, bytes.first(15));
    CHECK(b.state() == State::waiting);
    give(b, bytes.subspan(15));
    CHECK(b.refusal() == Refusal::garbage);
    CHECK(b.text() == "does not speak Troupe's protocol");
    CHECK(b.take_output().empty());
  }
}

TEST_CASE("a handshake that takes too long is refused at its deadline, not before") {
  auto b = listener();
  b.tick(kDeadline - Duration(1));
  CHECK(b.state() == State::waiting);
  b.tick(kDeadline);
  CHECK(b.refusal() == Refusal::timeout);
  auto a = connector();
  auto c = listener();
  meet(a, c);
  a.tick(TimePoint::max());
  CHECK(a.state() == State::done);
}

TEST_CASE("a short token and a name that cannot be sent are refused at once") {
  CHECK_THROWS_WITH(connector("short"), "[net] the cluster token has 5 bytes; expected at least 16");
  CHECK_THROWS_WITH(check_peer_info({1, std::string(256, 'x')}), Catch::Contains("256 bytes; at most 255"));
  CHECK_THROWS_WITH(check_peer_info({1, "a\nb"}), Catch::Contains("control character"));
  auto a = connector();
  CHECK_THROWS_AS(a.receive(std::vector<std::byte>(a.wanted() + 1)), Error);
  CHECK(random_nonce() != random_nonce());
}

TEST_CASE("a listener that wants TLS says so, and one that has none does") {
  auto a = connector();
  give(a, tls_wanted());
  CHECK(a.refusal() == Refusal::encryption);
  CHECK(a.text() == kSpeaksTlsAlone);
  CHECK(a.text().find("TROUPE_TLS") != std::string::npos);
  auto b = connector();
  give(b, no_tls());
  CHECK(b.state() == State::waiting);  // the first bytes of a plain hello
  auto c = listener();
  give(c, tls_wanted());  // which is no hello
  CHECK(c.refusal() == Refusal::garbage);
}

TEST_CASE("keys of a purpose follow from token, purpose and job") {
  const Key key = derived_key(kShared, "member", 7);
  CHECK(key == derived_key(kShared, "member", 7));
  CHECK(key != derived_key("some other token", "member", 7));
  CHECK(key != derived_key(kShared, "guest", 7));
  CHECK(key != derived_key(kShared, "member", 8));
}

TEST_CASE("a guest meets a member by a pass that the token gives, and by nothing else") {
  const auto guest = [](const std::string& secret, WorkerId id = kFirstGuest, uint64_t job = 0) {
    return Handshake(Role::connector, secret, {id, "guest"}, nonce_of(1), kDeadline, job);
  };
  for (const std::string job : {"", "slurm-1.0"}) {
    const std::string pass = guest_pass(kShared, job);
    REQUIRE(pass.size() == 80);
    CHECK(job_of_pass(pass) == job_number(kShared, job));
    auto a = guest(pass, kFirstGuest + 3, job_of_pass(pass));
    Handshake b(Role::listener, kShared, {7, "w7"}, nonce_of(2), kDeadline, job_number(kShared, job));
    meet(a, b);
    REQUIRE(a.state() == State::done);
    REQUIRE(b.state() == State::done);
    CHECK(a.peer().name == "w7");
    CHECK(b.peer().id == kFirstGuest + 3);
  }
  // A pass of another token or job, no pass at all, and a pass in place of the token.
  const std::string pass = guest_pass(kShared, "");
  struct Case {
    std::string secret;
    WorkerId id;
    uint64_t job;
  };
  for (const Case& c : {Case{guest_pass("some other token", ""), kFirstGuest, 0},
                        Case{guest_pass(kShared, "slurm-1.0"), kFirstGuest, 0}, Case{kShared, kFirstGuest, 0},
                        Case{pass, 3, 0}, Case{pass.substr(0, 64), 3, 0}, Case{pass, kNoWorker, 0}}) {
    INFO(c.secret << " " << c.id);
    auto a = guest(c.secret, c.id, c.job);
    auto b = listener();
    meet(a, b);
    CHECK(a.refusal() == Refusal::token);
    CHECK(b.refusal() == Refusal::token);
  }
  // Of a job that this is not.
  const std::string neighbour = guest_pass(kShared, "slurm-2.0");
  auto a = guest(neighbour, kFirstGuest, job_of_pass(neighbour));
  Handshake b(Role::listener, kShared, {7, "w7"}, nonce_of(2), kDeadline, job_number(kShared, "slurm-1.0"));
  meet(a, b);
  CHECK(b.refusal() == Refusal::job);
  for (const std::string& text : {std::string("short"), pass + "0", std::string(80, 'g')})
    CHECK_THROWS_WITH(job_of_pass(text), Catch::Contains("this is no guest's pass; expected 80 digits"));
}

TEST_CASE("the number of a peer is one of the standing that it proves") {
  // Who has a secret may still say what it likes in its proof: this one says another number than its hello.
  class Liar {
   public:
    Liar(const std::string& secret, WorkerId proves, WorkerId says)
        : secret_(Credentials(secret, standing_of(proves)).secret(standing_of(proves), 0)),
          honest_(Role::connector, secret, {proves, "x"}, nonce_of(1), kDeadline),
          says_(says) {}
    Handshake& meet_as(Handshake& b) {
      give(b, honest_.take_output());
      const auto answer = b.take_output();
      std::vector<std::byte> proof(300 + 32);
      std::memcpy(proof.data(), &says_, 4);
      proof[4] = std::byte{1}, proof[5] = std::byte{'x'};
      std::string text("troupe connector\0", 17);
      const auto add = [&](const void* from, size_t n) { text.append(static_cast<const char*>(from), n); };
      const uint64_t job = 0;
      add(&kProtocolVersion, 4), add(nonce_of(1).data(), 32), add(answer.data() + 16, 32);
      add(&job, 8), add(&job, 8), add(proof.data(), 300);
      unsigned size = 0;
      HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(proof.data() + 300), &size);
      give(b, proof);
      return b;
    }

   private:
    std::string secret_;
    Handshake honest_;
    WorkerId says_;
  };
  const std::string pass = guest_pass(kShared, "");
  auto b = listener();
  CHECK(Liar(pass, kFirstGuest, kFirstGuest + 1).meet_as(b).state() == State::done);  // so the proof is one
  for (const WorkerId member : {WorkerId{0}, WorkerId{3}, kFirstGuest - 1, kNoWorker}) {
    auto c = listener();
    CHECK(Liar(pass, kFirstGuest, member).meet_as(c).refusal() == Refusal::garbage);
    CHECK(c.text() == "is a guest by what it proves, and calls itself number " + std::to_string(member));
  }
  auto d = listener();
  CHECK(Liar(kShared, 3, kFirstGuest).meet_as(d).text() ==
        "is a member by what it proves, and calls itself number 1048576");
}
