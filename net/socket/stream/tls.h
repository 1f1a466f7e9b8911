// TLS 1.3 on a socket, by OpenSSL. Both ends have a key that follows from the cluster's token and the job (an
// external PSK with ephemeral Diffie-Hellman), so no certificates are needed, and who gets the token later
// cannot read what was recorded before. Or both show certificates, each checked by the other. The handshake
// of net/protocol/handshake.h runs inside, unchanged: it tells who is there, and refuses in its own words.
#pragma once
#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "net/encryption.h"
#include "net/protocol/handshake.h"

struct ssl_st;
struct ssl_ctx_st;
struct bio_st;

namespace troupe::internal::net {

/// What the links of a transport share: the keys. Outlives the links.
class TlsContext {
 public:
  /// `own`: this side's standing, whose token may be a guest's pass. `certificate`: in place of the token's
  /// key, if it has a chain. `records_per_key`: after so many a link changes its key; fewer than AES-GCM
  /// bears. Throws `failed` where OpenSSL cannot do it.
  TlsContext(std::string token, Standing own, uint64_t job, const Certificate& certificate = {},
             uint64_t records_per_key = uint64_t{1} << 23);

 private:
  friend class TlsLink;
  friend struct TlsCallbacks;
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };

  const Credentials credentials_;
  const std::string identity_;
  const uint64_t job_, records_per_key_;
  const bool by_certificates_;
  std::unique_ptr<ssl_ctx_st, Free> context_;
};

/// One end of a link. One thread may read while another one writes.
class TlsLink {
 public:
  using Side = Handshake::Role;
  enum class Step { waiting, done, failed };

  /// Does not own the descriptor, which stays open as long as this is used. `host`: what a connector's
  /// address calls the other side, which its certificate has to name. Throws std::bad_alloc.
  TlsLink(const TlsContext& context, Side side, int fd, std::string host);
  TlsLink(const TlsLink&) = delete;

  /// Goes on as far as it can without waiting: first a connector, then whoever can read.
  Step shake_hands();
  /// Whether this side has said something: a listener, once it has the whole hello of the other.
  bool spoke() const { return spoke_; }
  /// Of a failed one; also once receive() has given EBADMSG: a listener may refuse a certificate after its
  /// connector is done.
  Handshake::Refusal refusal() const { return refusal_; }
  const std::string& text() const { return text_; }

  /// As recvmsg() and sendmsg(), without waiting. EBADMSG: what came does not decrypt, as text() says.
  ssize_t receive(std::span<const iovec> parts);
  ssize_t send(std::span<const iovec> parts);
  /// Whether the last receive() took all that there was. If not, the socket may well be empty: it was read
  /// ahead.
  bool emptied() const { return emptied_; }

 private:
  friend struct TlsCallbacks;
  class Rest;
  struct Free {
    void operator()(ssl_st* link) const;
  };
  Step refuse(Handshake::Refusal refusal, std::string text);
  Step refused();
  bool is_known() const;
  bool of_certificates(int reason);
  ssize_t read_failed();
  bool encrypt(Rest& rest);
  bool flush();

  const int fd_;
  const Side side_;
  const std::string host_;
  const bool by_certificates_;
  const uint64_t records_per_key_;
  internal::Mutex mutex_;  // of all below, but for what only the reader, or the writer, uses
  std::unique_ptr<ssl_st, Free> link_;
  std::vector<std::byte> out_;  // encrypted, and in the socket up to sent_
  size_t sent_ = 0;
  bool spoke_ = false;
  bool ended_ = false;   // the stream, as the socket says
  int read_error_ = 0;   // of the socket
  bool failed_ = false;  // reading, for good
  bool emptied_ = false;
  size_t encrypted_ = 0;  // bytes of the caller that are in out_: sent when all of it is in the socket
  uint64_t records_ = 0;  // with the present key
  Handshake::Refusal refusal_ = Handshake::Refusal::none;
  std::string text_;
};

}  // namespace troupe::internal::net
