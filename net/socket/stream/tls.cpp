#include "net/socket/stream/tls.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "net/socket/loop/sockets.h"
#include "net/socket/stream/certificate.h"

namespace troupe::internal::net {
namespace {

// Of a connector's identity; the job's number follows, 16 digits.
constexpr std::string_view kMember = "troupe member ", kGuest = "troupe guest ";
constexpr unsigned char kCipher[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256
constexpr size_t kRecord = 16 << 10;               // bytes of one, at most
constexpr size_t kBatch = 4 * kRecord;             // encrypted before the socket is written
constexpr size_t kTurn = 1 << 20;                  // bytes of one call
constexpr size_t kReadAhead = 64 << 10;
constexpr long kMostOfChain = 32 << 10;  // bytes of a stranger's certificates
constexpr const char *kByCertificate =
                         "shows a certificate, and this side goes by the token's key: give all workers "
                         "TROUPE_TLS_CERTIFICATE, TROUPE_TLS_KEY and TROUPE_TLS_CA, or none of them",
                     *kByToken =
                         "goes by the token's key, and this side by certificates: give all workers "
                         "TROUPE_TLS_CERTIFICATE, TROUPE_TLS_KEY and TROUPE_TLS_CA, or none of them";
constexpr size_t kOutMost =
    2 * kBatch;  // a peer that keeps asking for new keys, and reads nothing, ends there

std::string identity_of(Standing standing, uint64_t job) {
  return fmt::format("{}{:016x}", standing == Standing::guest ? kGuest : kMember, job);
}

SSL_SESSION* session_of(SSL* link, const Credentials& credentials, Standing standing, uint64_t job) {
  const auto key = derived_key(credentials.secret(standing, job), "tls", job);
  SSL_SESSION* session = SSL_SESSION_new();
  const bool made =
      session &&
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()), key.size()) &&
      SSL_SESSION_set_cipher(session, SSL_CIPHER_find(link, kCipher)) &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
  if (made) return session;
  SSL_SESSION_free(session);
  return nullptr;
}

}  // namespace

// What OpenSSL calls.
struct TlsCallbacks {
  static const TlsContext& context_of(SSL* link) {
    return *static_cast<const TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(link)));
  }

  // A connector's own key.
  static int use_session(SSL* link, const EVP_MD*, const unsigned char** identity, size_t* size,
                         SSL_SESSION** session) {
    const TlsContext& context = context_of(link);
    *identity = reinterpret_cast<const unsigned char*>(context.identity_.data());
    *size = context.identity_.size();
    *session = session_of(link, context.credentials_, context.credentials_.own(), context.job_);
    return *session ? 1 : 0;
  }

  // The key of the standing and the job that the connector names. If the job is not this one's, the handshake
  // inside says so.
  static int find_session(SSL* link, const unsigned char* identity, size_t size, SSL_SESSION** session) {
    *session = nullptr;
    const std::string_view text(reinterpret_cast<const char*>(identity), size);
    const bool guest = text.starts_with(kGuest);
    if (!guest && !text.starts_with(kMember)) return 1;
    const Standing standing = guest ? Standing::guest : Standing::member;
    uint64_t job = 0;
    std::from_chars(text.data() + (guest ? kGuest : kMember).size(), text.data() + text.size(), job, 16);
    if (text != identity_of(standing, job)) return 1;
    *session = session_of(link, context_of(link).credentials_, standing, job);
    return *session ? 1 : 0;
  }

  // What is wrong with the other side's certificate, before OpenSSL forgets which one it was.
  static int check(int good, X509_STORE_CTX* store) {
    auto* link = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
    TlsLink& at = *static_cast<TlsLink*>(SSL_get_app_data(link));
    if (good && at.by_certificates_) return 1;
    try {
      at.refuse(Handshake::Refusal::certificate,
                at.by_certificates_ ? "shows " + refused_certificate(store, at.host_) : kByCertificate);
    } catch (const std::bad_alloc&) {  // then OpenSSL's words do
    }
    // The other side hears that there is no way to agree.
    if (!at.by_certificates_) X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
  }

  static TlsLink& link_of(BIO* bio) { return *static_cast<TlsLink*>(BIO_get_data(bio)); }

  static int read(BIO* bio, char* to, size_t size, size_t* got) {
    TlsLink& link = link_of(bio);
    BIO_clear_retry_flags(bio);
    ssize_t n;
    do n = ::recv(link.fd_, to, size, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0) return *got = static_cast<size_t>(n), 1;
    if (n == 0)
      link.ended_ = true;
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      BIO_set_retry_read(bio);
    else
      link.read_error_ = errno;
    return 0;
  }

  static int write(BIO* bio, const char* from, size_t size, size_t* taken) {
    TlsLink& link = link_of(bio);
    BIO_clear_retry_flags(bio);
    if (link.out_.size() + size > kOutMost) return 0;
    link.spoke_ = true;
    const auto* bytes = reinterpret_cast<const std::byte*>(from);
    try {
      link.out_.insert(link.out_.end(), bytes, bytes + size);
    } catch (const std::bad_alloc&) {
      return 0;
    }
    return *taken = size, 1;
  }

  static long control(BIO*, int what, long, void*) { return what == BIO_CTRL_FLUSH ? 1 : 0; }

  static const BIO_METHOD* method() {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "troupe");
      if (!m || !BIO_meth_set_read_ex(m, read) || !BIO_meth_set_write_ex(m, write) ||
          !BIO_meth_set_ctrl(m, control))
        throw std::bad_alloc();
      return m;
    }();
    return method;
  }
};

void TlsContext::Free::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }

TlsContext::TlsContext(std::string token, Standing own, uint64_t job, const Certificate& certificate,
                       uint64_t records_per_key)
    : credentials_(std::move(token), own),
      identity_(identity_of(own, job)),
      job_(job),
      records_per_key_(records_per_key),
      by_certificates_(!certificate.chain.empty()),
      context_(SSL_CTX_new(TLS_method())) {
  SSL_CTX* c = context_.get();
  if (!c || !SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) ||
      !SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) ||
      !SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256") || !SSL_CTX_set_num_tickets(c, 0) ||
      !SSL_CTX_set_app_data(c, this))
    throw_error(ErrorKind::failed, "[net] this OpenSSL has no TLS 1.3 with AES-128-GCM: " + openssl_reason());
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  if (by_certificates_) {
    use_certificate(c, certificate);
  } else {
    SSL_CTX_set_psk_use_session_callback(c, TlsCallbacks::use_session);
    SSL_CTX_set_psk_find_session_callback(c, TlsCallbacks::find_session);
  }
  SSL_CTX_set_max_cert_list(c, kMostOfChain);
  SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);  // of links that rest
  SSL_CTX_set_read_ahead(c, 1);
  SSL_CTX_set_default_read_buffer_len(c, kReadAhead);
}

// The caller's parts, from the first byte that is not encrypted yet.
class TlsLink::Rest {
 public:
  explicit Rest(std::span<const iovec> parts) : parts_(parts) { skip(0); }

  bool empty() const { return parts_.empty(); }
  void skip(size_t n) {
    offset_ += n;
    while (!parts_.empty() && offset_ >= parts_.front().iov_len) {
      offset_ -= parts_.front().iov_len;
      parts_ = parts_.subspan(1);
    }
  }
  /// The bytes of a record: in place where a part has them all, else copied to `together`.
  std::span<const std::byte> record(std::span<std::byte> together) const {
    const std::span<const std::byte> here(static_cast<const std::byte*>(parts_.front().iov_base) + offset_,
                                          parts_.front().iov_len - offset_);
    if (here.size() >= together.size()) return here.first(together.size());
    if (parts_.size() == 1) return here;
    std::memcpy(together.data(), here.data(), here.size());
    size_t size = here.size();
    for (const iovec& part : parts_.subspan(1)) {
      const size_t n = std::min(part.iov_len, together.size() - size);
      if (n == 0) continue;
      std::memcpy(together.data() + size, part.iov_base, n);
      size += n;
    }
    return together.first(size);
  }

 private:
  std::span<const iovec> parts_;
  size_t offset_ = 0;
};

void TlsLink::Free::operator()(ssl_st* link) const { SSL_free(link); }

TlsLink::TlsLink(const TlsContext& context, Side side, int fd, std::string host)
    : fd_(fd),
      side_(side),
      host_(std::move(host)),
      by_certificates_(context.by_certificates_),
      records_per_key_(context.records_per_key_),
      link_(SSL_new(context.context_.get())) {
  BIO* bio = link_ ? BIO_new(TlsCallbacks::method()) : nullptr;
  if (!bio || SSL_set_app_data(link_.get(), this) != 1) throw std::bad_alloc();
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(link_.get(), bio, bio);
  const bool listens = side == Side::listener;
  listens ? SSL_set_accept_state(link_.get()) : SSL_set_connect_state(link_.get());
  // With the token's key a listener asks for no certificate, and a connector believes none.
  if (by_certificates_ || !listens)
    SSL_set_verify(link_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, TlsCallbacks::check);
  if (!by_certificates_ || listens) return;
  const std::string bare = host_.substr(0, host_.find('%'));  // without the interface of an address
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(link_.get()), bare.c_str()) != 1 &&
      SSL_set1_host(link_.get(), host_.c_str()) != 1)
    throw std::bad_alloc();
}

TlsLink::Step TlsLink::shake_hands() {
  std::lock_guard lock(mutex_);
  ERR_clear_error();
  const int rc = SSL_do_handshake(link_.get());
  const int state = SSL_get_error(link_.get(), rc);
  if (!flush() && rc == 1)  // some hundred bytes on a new socket
    return refuse(Handshake::Refusal::none, "took no bytes during the handshake");
  if (rc == 1 && !is_known())
    return refuse(Handshake::Refusal::garbage, "does not use a key of the cluster in TLS");
  if (rc == 1) return Step::done;
  return state == SSL_ERROR_WANT_READ ? Step::waiting : refused();
}

// Without the key of both, or a certificate, there is no link, whatever else OpenSSL would take.
bool TlsLink::is_known() const {
  if (!by_certificates_) return SSL_session_reused(link_.get()) == 1;
  return SSL_get0_peer_certificate(link_.get()) && SSL_get_verify_result(link_.get()) == X509_V_OK;
}

TlsLink::Step TlsLink::refused() {
  using Refusal = Handshake::Refusal;
  if (refusal_ != Refusal::none) return Step::failed;  // of a certificate
  if (ended_) return refuse(Refusal::none, "closed the connection during the handshake");
  if (read_error_) return refuse(Refusal::none, errno_text(read_error_) + " during the handshake");
  const int reason = ERR_GET_REASON(ERR_peek_error());
  if (side_ == Side::listener && reason == SSL_R_BINDER_DOES_NOT_VERIFY)
    return refuse(Refusal::token, "does not have the cluster token");
  if (side_ == Side::connector && reason == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER)
    return refuse(Refusal::token, "refused the cluster token");
  if (of_certificates(reason)) return Step::failed;
  return refuse(Refusal::garbage, "does not speak TLS as workers do: " + openssl_reason());
}

// Whether this is about certificates; then it is refused.
bool TlsLink::of_certificates(int reason) {
  using Refusal = Handshake::Refusal;
  if (!by_certificates_) {
    if (side_ != Side::listener || reason != SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM) return false;
    refuse(Refusal::certificate, kByCertificate);
    return true;
  }
  switch (reason) {
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      refuse(Refusal::certificate, kByToken);
      return true;
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
      refuse(Refusal::certificate, std::string("refused this side's certificate: ") +
                                       SSL_alert_desc_string_long(reason - SSL_AD_REASON_OFFSET));
      return true;
    default:
      return false;
  }
}

TlsLink::Step TlsLink::refuse(Handshake::Refusal refusal, std::string text) {
  refusal_ = refusal;
  text_ = std::move(text);
  return Step::failed;
}

ssize_t TlsLink::receive(std::span<const iovec> parts) {
  size_t done = 0;
  emptied_ = false;
  for (const iovec& part : parts)
    for (size_t at = 0; at < part.iov_len;) {
      if (done >= kTurn) return static_cast<ssize_t>(done);
      std::lock_guard lock(mutex_);  // for one record: somebody may want to write
      size_t got = 0;
      ERR_clear_error();
      if (failed_ || SSL_read_ex(link_.get(), static_cast<std::byte*>(part.iov_base) + at, part.iov_len - at,
                                 &got) != 1) {
        if (!failed_ && SSL_get_error(link_.get(), 0) == SSL_ERROR_WANT_READ) {
          emptied_ = true;
          if (done == 0) errno = EAGAIN;
          return done ? static_cast<ssize_t>(done) : -1;
        }
        const ssize_t outcome = read_failed();
        return done ? static_cast<ssize_t>(done) : outcome;  // the next call says it
      }
      at += got;
      done += got;
    }
  return static_cast<ssize_t>(done);
}

// For good. The other side hears what is wrong, if it can.
ssize_t TlsLink::read_failed() {
  if (!std::exchange(failed_, true)) {
    if (!ended_ && !read_error_ && !of_certificates(ERR_GET_REASON(ERR_peek_error())))
      text_ = openssl_reason();
    flush();
  }
  if (ended_) return 0;
  errno = read_error_ ? read_error_ : EBADMSG;
  return -1;
}

// What is encrypted counts as sent when all of it is in the socket: until then the caller keeps it, and
// begins with it again.
ssize_t TlsLink::send(std::span<const iovec> parts) {
  Rest rest(parts);
  rest.skip(encrypted_);
  size_t done = 0;
  for (;;) {
    std::lock_guard lock(mutex_);
    if (!flush()) break;
    done += std::exchange(encrypted_, 0);
    if (rest.empty() || done >= kTurn) return static_cast<ssize_t>(done);
    if (!encrypt(rest)) break;
  }
  return done ? static_cast<ssize_t>(done) : -1;
}

bool TlsLink::encrypt(Rest& rest) {
  static thread_local std::array<std::byte, kRecord> together;
  while (encrypted_ < kBatch && !rest.empty()) {
    const auto record = rest.record(together);
    size_t n = 0;
    ERR_clear_error();
    const bool renewed = records_ < records_per_key_ ||
                         (records_ = 0, SSL_key_update(link_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
    if (!renewed || SSL_write_ex(link_.get(), record.data(), record.size(), &n) != 1) {
      errno = EPIPE;
      return false;
    }
    ++records_;
    encrypted_ += n;
    rest.skip(n);
  }
  return true;
}

// Whether all of it is in the socket now; else errno tells.
bool TlsLink::flush() {
  while (sent_ < out_.size()) {
    const ssize_t n = ::send(fd_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    sent_ += static_cast<size_t>(n);
  }
  out_.clear();
  sent_ = 0;
  return true;
}

}  // namespace troupe::internal::net
