// One call of connect(): names to addresses, attempts, handshake, and tries again while there is time.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/socket/connection/dial.h"
#include "net/socket/establish/handshake_link.h"

namespace troupe::internal::net {

/// On the upkeep thread, but for start().
class Connector final : public Dial, public std::enable_shared_from_this<Connector> {
 public:
  using Failure = Comeback::Failure;
  /// Tries until `deadline`. `words`: what it says of the link.
  Connector(std::shared_ptr<Reactor> core, Address address, bool retry, TimePoint deadline,
            const LinkWords& words);
  void start(Made made, Failed failed);
  /// Fails with `disconnected`: the transport goes away.
  void cancel();
  void abandon() override;

 private:
  void attempt();
  void resolved(Resolved answer);
  void try_next();
  void on_connected();
  void shake_hands();
  void attempt_failed(const std::string& why, bool temporary = false);
  void give_up(ErrorKind kind, const std::string& text, Failure failure = Failure::failed);
  void detach();
  bool ended() const { return ended_; }

  std::shared_ptr<Reactor> core_;
  const Address address_;
  const bool retry_;
  const LinkWords words_;
  Made made_;
  Failed failed_;
  TimePoint deadline_;
  Duration backoff_;
  std::vector<SockAddr> candidates_;
  size_t next_ = 0;
  Descriptor fd_;
  uint64_t watch_ = 0, attempt_timer_ = 0, deadline_timer_ = 0, retry_timer_ = 0;
  uint64_t attempt_ = 0;  // number of the running one: late answers of name servers are not for the next
  std::shared_ptr<HandshakeLink> link_;
  std::string last_failure_ = "no answer";
  int unheard_ = 0;
  bool ended_ = false;
};

}  // namespace troupe::internal::net
