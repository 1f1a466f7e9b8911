// A handshake on a socket: moves its bytes, keeps its deadline, reports how it ended.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "net/socket/connection/reactor.h"
#include "net/socket/stream/stream.h"

namespace troupe::internal::net {

/// On the upkeep thread throughout.
class HandshakeLink : public std::enable_shared_from_this<HandshakeLink> {
 public:
  /// `refusal` is none if the other side left or the socket broke.
  struct Failure {
    Handshake::Refusal refusal;
    std::string text;      ///< "closed the connection during the handshake"
    bool unheard = false;  ///< the other side, a listener, left without a byte: it may be full for now
  };
  /// `ours`, `theirs`: what each side has said of the link.
  using Done =
      std::function<void(Stream stream, PeerInfo peer, const LinkWords& ours, const LinkWords& theirs)>;
  using Failed = std::function<void(const Failure&)>;

  /// A connector gives the `host` of its address, and the `words` of its link.
  HandshakeLink(std::shared_ptr<Reactor> core, Descriptor fd, Handshake::Role role, TimePoint deadline,
                std::string host = "", LinkWords words = {});
  /// Exactly one of the two is called, once, unless abandon() comes first.
  void start(Done done, Failed failed);
  /// Fails it now, as for a passed deadline; `crowded`: because others wait.
  void expire(bool crowded = false);
  /// Closes without a report.
  void abandon();
  TimePoint started() const { return started_; }
  /// How far the other side of a listener's has come: it has said nothing, a part of its hello, or all of it.
  enum class Progress { silent, begun, greeted };
  Progress came() const;

 private:
  // What the next bytes are: not known before the first one is seen, TLS's own, or those of `machine_`.
  enum class Phase { look, tls, talk };

  void on_readable();
  Failure broken(int error) const;
  bool look();
  void secure();
  bool shake_hands();
  bool refuse(const char* what, const std::vector<std::byte>& answer);
  void progress();
  void fail(Failure failure);
  void detach();

  std::shared_ptr<Reactor> core_;
  const Handshake::Role role_;
  const std::string host_;
  Stream stream_;
  Phase phase_ = Phase::talk;
  bool heard_ = false;  // a byte has come
  Handshake machine_;
  TimePoint deadline_, started_;
  uint64_t watch_ = 0, timer_ = 0;
  Done done_;
  Failed failed_;
};

}  // namespace troupe::internal::net
