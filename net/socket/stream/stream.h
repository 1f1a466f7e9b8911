// The bytes of one connection: on the socket as they are, or encrypted.
#pragma once
#include <sys/socket.h>

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "net/socket/loop/sockets.h"
#include "net/socket/stream/tls.h"

namespace troupe::internal::net {

/// Non-blocking. One thread may read while another one writes.
class Stream {
 public:
  Stream() = default;
  explicit Stream(Descriptor fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void reset() { tls_.reset(), fd_.reset(); }

  /// From now on bytes go by TLS, which shakes hands first. Before anything is read or written. `host`: of a
  /// connector's address.
  TlsLink& secure(const TlsContext& context, TlsLink::Side side, std::string host = "") {
    tls_ = std::make_unique<TlsLink>(context, side, fd_.get(), std::move(host));
    return *tls_;
  }
  TlsLink* tls() const { return tls_.get(); }

  /// As recvmsg(). No descriptors come by TLS.
  ssize_t receive(msghdr& m) {
    if (!tls_) [[likely]]
      return ::recvmsg(fd_.get(), &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    m.msg_controllen = 0;
    return tls_->receive({m.msg_iov, m.msg_iovlen});
  }
  /// After receive() gave `got` of the bytes that it was `asked` for: whether it left nothing to be read.
  bool emptied(size_t got, size_t asked) const { return tls_ ? tls_->emptied() : got < asked; }
  /// As sendmsg(). Less than all parts of a plain stream, or -1 with EAGAIN: the socket is full.
  ssize_t send(const msghdr& m) {
    if (!tls_) [[likely]]
      return ::sendmsg(fd_.get(), &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    return tls_->send({m.msg_iov, m.msg_iovlen});
  }

 private:
  Descriptor fd_;
  std::unique_ptr<TlsLink> tls_;
};

}  // namespace troupe::internal::net
