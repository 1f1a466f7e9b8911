// How two ends prove to each other that they know the cluster's token, before anything else is believed.
//
//   connector -> listener   hello:  magic (8), version (4), standing (4), nonce (32), job (8)
//   listener -> connector   hello, then HMAC(secret, "listener", version, both nonces, both jobs)
//   connector -> listener   who it is (300), HMAC(secret, "connector", version, both nonces, jobs, who it is)
//   listener -> connector   who it is (300), HMAC(secret, "welcome", version, both nonces, jobs, both peers)
//
// A peer says who it is by its number, length of the name, name (255), and what it says of the link
// (net/protocol/link.h). The secret is that of the connector's standing, member or guest, and job
// (net/protocol/standing.h); a member derives both from the token, and who listens is a member. A peer's
// number has to be one of its standing.
//
// A pure state machine: bytes in, bytes out; time and randomness are inputs. All fields have fixed sizes, so
// an unauthenticated peer can make this side hold less than a kilobyte. The token itself never travels. Each
// side's proof has its own label, so that one side's proof is worth nothing when sent back to it.
//
// Where a link is encrypted (net/socket/stream/tls.h) all of this runs inside. A listener that wants it so
// answers a plain hello with tls_wanted(); one that has no TLS answers a hello of TLS with no_tls().
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/protocol/keys.h"
#include "net/protocol/link.h"
#include "net/protocol/standing.h"
#include "net/transport.h"

namespace troupe::internal::net {

/// Spoken by this build. The first 16 bytes of a hello have the same form in every version.
inline constexpr uint32_t kProtocolVersion = 17;
inline constexpr size_t kNameBytes = 255;  ///< longest PeerInfo::name
inline constexpr size_t kTokenBytes = 16;  ///< shortest token

using Nonce = std::array<std::byte, 32>;
/// From the system's random generator.
Nonce random_nonce();
/// The first bytes of an answer to whoever begins in the other way: magic, version, and the mark, or zero.
std::vector<std::byte> tls_wanted();
std::vector<std::byte> no_tls();
/// What the other side then does wrong.
extern const char* const kSpeaksTlsAlone;
extern const char* const kSpeaksPlainAlone;

/// Throws `invalid` unless the name is at most 255 bytes without control characters.
void check_peer_info(const PeerInfo& info);
/// Throws `invalid` unless the token has at least 16 bytes.
void check_token(const std::string& token);

/// Not thread-safe; feed it until state() is no longer `waiting`.
class Handshake {
 public:
  enum class Role { connector, listener };
  enum class State { waiting, done, refused };
  enum class Refusal { none, garbage, version, token, job, encryption, certificate, timeout };

  /// `token`: a guest's pass, if the number of `self` is a guest's. `deadline`: see tick(). `job`: of
  /// job_number(). `version` is kProtocolVersion but in tests.
  Handshake(Role role, std::string token, PeerInfo self, const Nonce& nonce, TimePoint deadline,
            uint64_t job = 0, uint32_t version = kProtocolVersion);

  /// What a connector says of the link, before its first output. Without it: nothing outlives this.
  void set_link(const LinkWords& words) { link_ = words; }
  /// What a listener answers, once the other side has proved who it is. Without it: as above.
  using Answer = std::function<LinkWords(const LinkWords& theirs)>;
  void set_answer(Answer answer) { answer_ = std::move(answer); }
  /// What each side has said of the link; valid once done.
  const LinkWords& link() const { return link_; }
  const LinkWords& peer_link() const { return peer_link_; }

  /// How many bytes may be received now, at least 1 while waiting. Reading no more leaves what follows the
  /// handshake to the connection.
  size_t wanted() const;
  /// Takes at most wanted() bytes.
  void receive(std::span<const std::byte> bytes);
  /// Bytes to send to the other side now; also after a refusal, so that it can say why.
  std::vector<std::byte> take_output();
  /// Refuses once the deadline has passed.
  void tick(TimePoint now);

  State state() const { return state_; }
  /// Whether the other side has said all of its hello: what is left to a connector is its proof.
  bool greeted() const { return step_ != Step::hello && step_ != Step::nonce; }
  Refusal refusal() const { return refusal_; }
  /// What the other side did wrong: "speaks version 9 of the protocol, this side version 1: ...".
  const std::string& text() const { return text_; }
  /// Valid once done.
  const PeerInfo& peer() const { return peer_; }

 private:
  enum class Step { hello, nonce, proof, welcome, ended };
  using Mac = std::array<std::byte, 32>;

  void advance();
  void on_hello();
  void on_listener_proof();
  void on_connector_proof();
  void on_welcome();
  void refuse(Refusal why, std::string text);
  void expect(Step step, size_t bytes);
  void put_hello(Standing standing);
  void take_hello();
  bool other_job() const { return job_ && other_job_ && job_ != other_job_; }
  void put(std::span<const std::byte> bytes) { output_.insert(output_.end(), bytes.begin(), bytes.end()); }
  Mac mac(std::string_view label, std::span<const std::byte> more) const;
  bool matches(const Mac& expected, size_t offset) const;
  bool read_peer();

  Role role_;
  Credentials credentials_;
  Standing standing_;   // of the connector
  std::string secret_;  // once the connector's standing and job are known
  PeerInfo info_;       // of this side
  Nonce nonce_, other_nonce_{};
  TimePoint deadline_;
  uint64_t job_, other_job_ = 0;
  uint32_t version_;

  Step step_ = Step::hello;
  State state_ = State::waiting;
  Refusal refusal_ = Refusal::none;
  size_t expected_ = 0;
  std::vector<std::byte> input_, output_, peer_bytes_;
  PeerInfo peer_;
  LinkWords link_, peer_link_;
  Answer answer_;
  std::string text_;
};

}  // namespace troupe::internal::net
