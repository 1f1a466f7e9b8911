// The bytes of one connection: on the socket as they are, or encrypted. Over a long way by several sockets,
// since one carries no more than the system keeps for it during a round trip: the first one as long as they
// are made, then the others, its lanes, in turns (turns.h).
#pragma once
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/socket/loop/sockets.h"
#include "net/socket/stream/tls.h"
#include "net/socket/stream/turns.h"

namespace troupe::internal::net {

/// Non-blocking. One thread may read while another one writes.
class Stream {
 public:
  Stream() = default;
  explicit Stream(Descriptor fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void reset() { lanes_.clear(), in_ = out_ = Turns(), tls_.reset(), fd_.reset(); }

  /// From now on bytes go by TLS, which shakes hands first. Before anything is read or written. `host`: of a
  /// connector's address.
  TlsLink& secure(const TlsContext& context, TlsLink::Side side, std::string host = "") {
    tls_ = std::make_unique<TlsLink>(context, side, fd_.get(), std::move(host));
    return *tls_;
  }
  TlsLink* tls() const { return tls_.get(); }

  /// One more lane; while nobody reads or writes.
  void join(Stream lane) { lanes_.push_back(std::move(lane)); }
  const std::vector<Stream>& lanes() const { return lanes_; }
  /// What is read, or written, next comes by the lanes.
  void read_lanes() { in_ = Turns(lanes_.size()); }
  void write_lanes() { out_ = Turns(lanes_.size()); }
  bool reads_lanes() const { return static_cast<bool>(in_); }
  bool writes_lanes() const { return static_cast<bool>(out_); }
  /// The lane whose turn it is.
  size_t reads() const { return in_.way(); }
  size_t writes() const { return out_.way(); }

  /// As recvmsg(). No descriptors come by TLS.
  ssize_t receive(msghdr& m) {
    if (in_) [[unlikely]]
      return take_turn(in_, m, [](Stream& lane, msghdr& part) { return lane.receive(part); });
    if (!tls_) [[likely]]
      return ::recvmsg(fd_.get(), &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    m.msg_controllen = 0;
    return tls_->receive({m.msg_iov, m.msg_iovlen});
  }
  /// After receive() gave `got` of the bytes that it was `asked` for: whether it left nothing to be read.
  bool emptied(size_t got, size_t asked) const { return !in_ && (tls_ ? tls_->emptied() : got < asked); }
  /// Whether bytes may be here that the socket, or that of the next turn, tells nobody of.
  bool reads_ahead() const { return tls_ || in_; }
  /// As sendmsg(). -1 with EAGAIN: the socket is full; so it is after less than all parts if part_is_full().
  ssize_t send(msghdr& m) {
    if (out_) [[unlikely]]
      return take_turn(out_, m, [](Stream& lane, msghdr& part) { return lane.send(part); });
    if (!tls_) [[likely]]
      return ::sendmsg(fd_.get(), &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    return tls_->send({m.msg_iov, m.msg_iovlen});
  }
  bool part_is_full() const { return !tls_ && !out_; }
  /// Whether bytes wait in the socket that is read now.
  bool unread() const {
    int bytes = 0;
    return ::ioctl(in_ ? lanes_[in_.way()].fd() : fd(), FIONREAD, &bytes) == 0 && bytes != 0;
  }
  /// TLS of what is read now.
  const TlsLink* reader() const { return in_ ? lanes_[in_.way()].tls() : tls(); }

 private:
  // One socket carries as much as its turn has left.
  template <class Call>
  ssize_t take_turn(Turns& turns, msghdr& m, const Call& call) {
    size_t parts = 0, cut = 0;
    for (size_t bytes = 0; parts < m.msg_iovlen && cut == 0; ++parts) {
      bytes += m.msg_iov[parts].iov_len;
      if (bytes > turns.left()) cut = bytes - turns.left();
    }
    if (cut) m.msg_iov[parts - 1].iov_len -= cut;
    msghdr part{};
    part.msg_iov = m.msg_iov, part.msg_iovlen = parts;
    const ssize_t n = call(lanes_[turns.way()], part);
    if (cut) m.msg_iov[parts - 1].iov_len += cut;
    m.msg_controllen = 0;
    if (n > 0) turns.pass(static_cast<size_t>(n));
    return n;
  }

  Descriptor fd_;
  std::unique_ptr<TlsLink> tls_;
  std::vector<Stream> lanes_;
  Turns in_, out_;
};

}  // namespace troupe::internal::net
