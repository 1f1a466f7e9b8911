#include "net/protocol/handshake.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "core/base/ascii.h"
#include "core/base/random_bytes.h"

namespace troupe::internal::net {
namespace {

constexpr char kMagic[] = {'T', 'R', 'O',  'U',
                           'P', 'E', '\r', '\n'};  // the line end shows text-mode mangling
constexpr size_t kPreamble = 16, kMacBytes = 32;
constexpr size_t kNamedBytes = 4 + 1 + kNameBytes, kInfoBytes = kNamedBytes + kLinkWordsBytes;
constexpr size_t kHelloBytes = sizeof(Nonce) + sizeof(uint64_t);  // behind the preamble
constexpr const char* kOtherJob =
    "belongs to another job, which has the same token: give each job an address of its own";

constexpr uint32_t kTlsWanted = 1;  // in place of a standing

std::vector<std::byte> preamble(uint32_t version, uint32_t mark = 0) {
  std::vector<std::byte> out(kPreamble);
  std::memcpy(out.data(), kMagic, 8);
  std::memcpy(out.data() + 8, &version, 4);
  std::memcpy(out.data() + 12, &mark, 4);
  return out;
}

// id, length of the name, name padded with zeros, words of the link.
std::vector<std::byte> encode_info(const PeerInfo& info, const LinkWords& link) {
  std::vector<std::byte> out(kInfoBytes);
  std::memcpy(out.data(), &info.id, 4);
  out[4] = static_cast<std::byte>(info.name.size());
  std::memcpy(out.data() + 5, info.name.data(), info.name.size());
  const auto words = encode_link_words(link);
  std::copy(words.begin(), words.end(), out.begin() + kNamedBytes);
  return out;
}

}  // namespace

const char* const kSpeaksTlsAlone =
    "speaks TLS alone, and this side plain TCP: give all workers the same TROUPE_TLS (require, where a "
    "proxy stands between hosts)";
const char* const kSpeaksPlainAlone =
    "speaks plain TCP, and this side TLS alone: give all workers the same TROUPE_TLS (require, where a "
    "proxy stands between hosts)";

std::vector<std::byte> tls_wanted() { return preamble(kProtocolVersion, kTlsWanted); }
std::vector<std::byte> no_tls() { return preamble(kProtocolVersion); }

Nonce random_nonce() {
  Nonce n;
  random_bytes(n.data(), n.size());
  return n;
}

void check_peer_info(const PeerInfo& info) {
  if (info.name.size() > kNameBytes)
    throw_invalid(
        fmt::format("[net] a worker name of {} bytes; at most {} are allowed", info.name.size(), kNameBytes));
  if (std::any_of(info.name.begin(), info.name.end(), is_control))
    throw_invalid("[net] a worker name with a control character; expected printable text");
}

void check_token(const std::string& token) {
  if (token.size() < kTokenBytes)
    throw_invalid(
        fmt::format("[net] the cluster token has {} bytes; expected at least {}", token.size(), kTokenBytes));
  // OpenSSL loads it now, while there is memory: later a lack of memory would look as a lack of this does.
  static const bool there = [] {
    unsigned char out[kMacBytes];
    return HMAC(EVP_sha256(), "troupe", 6, out, 0, out, nullptr) != nullptr;
  }();
  if (!there) throw_error(ErrorKind::failed, "[net] HMAC-SHA256 is not available in this OpenSSL");
}

Handshake::Handshake(Role role, std::string token, PeerInfo self, const Nonce& nonce, TimePoint deadline,
                     uint64_t job, uint32_t version)
    : role_(role),
      credentials_(token, standing_of(self.id)),
      standing_(standing_of(self.id)),
      nonce_(nonce),
      deadline_(deadline),
      job_(job),
      version_(version) {
  check_token(token);
  check_peer_info(self);
  info_ = std::move(self);
  expect(Step::hello, kPreamble);
  if (role_ != Role::connector) return;
  secret_ = credentials_.secret(standing_, job_);
  put_hello(standing_);
}

void Handshake::put_hello(Standing standing) {
  put(preamble(version_, static_cast<uint32_t>(standing)));
  put(nonce_);
  put(std::as_bytes(std::span(&job_, 1)));
}

void Handshake::take_hello() {
  std::copy_n(input_.begin(), sizeof(Nonce), other_nonce_.begin());
  std::memcpy(&other_job_, input_.data() + sizeof(Nonce), sizeof other_job_);
}

size_t Handshake::wanted() const { return state_ == State::waiting ? expected_ - input_.size() : 0; }

void Handshake::receive(std::span<const std::byte> bytes) {
  if (state_ != State::waiting) return;
  if (bytes.size() > wanted()) throw_invalid("[net] more bytes than the handshake asked for");
  input_.insert(input_.end(), bytes.begin(), bytes.end());
  if (input_.size() == expected_) advance();
}

std::vector<std::byte> Handshake::take_output() { return std::exchange(output_, {}); }

void Handshake::tick(TimePoint now) {
  if (state_ == State::waiting && now >= deadline_)
    refuse(Refusal::timeout, "did not finish the handshake in time");
}

void Handshake::advance() {
  switch (step_) {
    case Step::hello:
      return on_hello();
    case Step::nonce:
      if (role_ == Role::connector) return on_listener_proof();
      take_hello();
      secret_ = credentials_.secret(standing_, other_job_);
      put_hello(Standing::member);
      put(mac("listener", {}));
      return expect(Step::proof, kInfoBytes + kMacBytes);
    case Step::proof:
      return on_connector_proof();
    case Step::welcome:
      return on_welcome();
    case Step::ended:
      return;
  }
}

void Handshake::on_hello() {
  uint32_t version, mark;
  std::memcpy(&version, input_.data() + 8, 4);
  std::memcpy(&mark, input_.data() + 12, 4);
  const bool wants_tls = mark == kTlsWanted && role_ == Role::connector,
             member = mark == static_cast<uint32_t>(Standing::member),
             guest = mark == static_cast<uint32_t>(Standing::guest) && role_ == Role::listener;
  if (std::memcmp(input_.data(), kMagic, 8) != 0 || (!member && !guest && !wants_tls))
    return refuse(Refusal::garbage, "does not speak Troupe's protocol");
  if (version != version_) {
    if (role_ == Role::listener) put(preamble(version_));  // the connector names both versions
    return refuse(
        Refusal::version,
        fmt::format("speaks version {} of the protocol, this side version {}: build the programs of all "
                    "workers with one version of Troupe",
                    version, version_));
  }
  if (wants_tls) return refuse(Refusal::encryption, kSpeaksTlsAlone);
  if (role_ == Role::listener) standing_ = guest ? Standing::guest : Standing::member;
  expect(Step::nonce, role_ == Role::listener ? kHelloBytes : kHelloBytes + kMacBytes);
}

void Handshake::on_listener_proof() {
  take_hello();
  const bool reflected = other_nonce_ == nonce_;
  // A proof of zeros tells the listener why this side leaves, and gives nothing away.
  if (reflected || !matches(mac("listener", {}), kHelloBytes)) {
    put(std::vector<std::byte>(kInfoBytes + kMacBytes));
    return refuse(Refusal::token, "refused the cluster token");
  }
  const auto self = encode_info(info_, link_);
  put(self);
  put(mac("connector", self));
  if (other_job()) return refuse(Refusal::job, kOtherJob);  // so does the listener, now that it trusts us
  expect(Step::welcome, kInfoBytes + kMacBytes);
}

void Handshake::on_connector_proof() {
  if (!matches(mac("connector", std::span(input_).first(kInfoBytes)), kInfoBytes))
    return refuse(Refusal::token, "does not have the cluster token");
  if (other_job()) return refuse(Refusal::job, kOtherJob);
  if (!read_peer()) return;
  if (answer_) link_ = answer_(peer_link_);
  const auto self = encode_info(info_, link_);
  peer_bytes_.insert(peer_bytes_.end(), self.begin(), self.end());
  put(self);
  put(mac("welcome", peer_bytes_));
  step_ = Step::ended;
  state_ = State::done;
}

void Handshake::on_welcome() {
  std::vector<std::byte> both = encode_info(info_, link_);
  both.insert(both.end(), input_.begin(), input_.begin() + kInfoBytes);
  if (!matches(mac("welcome", both), kInfoBytes)) return refuse(Refusal::token, "refused the cluster token");
  if (!read_peer()) return;
  step_ = Step::ended;
  state_ = State::done;
}

bool Handshake::read_peer() {
  std::memcpy(&peer_.id, input_.data(), 4);
  peer_.name.assign(reinterpret_cast<const char*>(input_.data()) + 5, std::to_integer<size_t>(input_[4]));
  peer_bytes_.assign(input_.begin(), input_.begin() + kInfoBytes);
  peer_link_ = decode_link_words(input_.data() + kNamedBytes);
  const bool clean = std::none_of(peer_.name.begin(), peer_.name.end(), is_control);
  if (!clean || encode_info(peer_, peer_link_) != peer_bytes_) {
    refuse(Refusal::garbage, "gives itself a malformed name");
  } else if (const Standing proved = role_ == Role::listener ? standing_ : Standing::member;
             standing_of(peer_.id) != proved) {
    refuse(Refusal::garbage, fmt::format("is a {} by what it proves, and calls itself number {}",
                                         proved == Standing::guest ? "guest" : "member", peer_.id));
  }
  return state_ == State::waiting;
}

void Handshake::refuse(Refusal why, std::string text) {
  state_ = State::refused;
  step_ = Step::ended;
  refusal_ = why;
  text_ = std::move(text);
}

void Handshake::expect(Step step, size_t bytes) {
  step_ = step;
  expected_ = bytes;
  input_.clear();
}

Handshake::Mac Handshake::mac(std::string_view label, std::span<const std::byte> more) const {
  std::string text;
  const auto add = [&](const void* data, size_t size) { text.append(static_cast<const char*>(data), size); };
  const bool connector = role_ == Role::connector;
  const Nonce &first = connector ? nonce_ : other_nonce_, &second = connector ? other_nonce_ : nonce_;
  add("troupe ", 7);
  add(label.data(), label.size());
  add("\0", 1);
  add(&version_, 4);
  add(first.data(), first.size());
  add(second.data(), second.size());
  add(connector ? &job_ : &other_job_, sizeof job_);
  add(connector ? &other_job_ : &job_, sizeof job_);
  add(more.data(), more.size());
  return keyed_hash(secret_, text);
}

bool Handshake::matches(const Mac& expected, size_t offset) const {
  return CRYPTO_memcmp(expected.data(), input_.data() + offset, expected.size()) == 0;
}

}  // namespace troupe::internal::net
