// Accepts connections, shakes hands with them, refuses strangers.
#pragma once
#include <sys/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/mutex.h"
#include "net/socket/establish/handshake_link.h"

namespace troupe::internal::net {

/// Works on the upkeep thread; close() may be called from any. While Limits::unauthenticated handshakes are
/// going on, newcomers wait in the kernel's queue, and those that dawdle lose their place to them: the
/// sooner, the less they have said. Members say all that they have to at once.
class ListenPoint : public std::enable_shared_from_this<ListenPoint> {
 public:
  /// Throws `failed` naming the address.
  ListenPoint(std::shared_ptr<Reactor> core, const Address& address);
  ~ListenPoint();
  void start();
  /// Frees the address before it returns.
  void close();
  const Address& address() const { return address_; }

 private:
  void on_acceptable();
  bool accept_one();
  void begin(Descriptor fd);
  void ended(uint64_t number);
  void refused(const std::string& from, const HandshakeLink::Failure& failure);
  void pause(Duration time);
  TimePoint patience_with(const HandshakeLink& link) const;
  void watch_house();

  std::shared_ptr<Reactor> core_;
  Address address_;
  internal::Mutex mutex_;  // of fd_ and watch_
  Descriptor fd_;
  uint64_t watch_ = 0;
  dev_t device_ = 0;  // of the socket file, so that only ours is removed
  ino_t inode_ = 0;
  std::map<uint64_t, std::shared_ptr<HandshakeLink>> links_;  // oldest first
  uint64_t next_number_ = 1, house_timer_ = 0;
  bool full_ = false, paused_ = false;
};

}  // namespace troupe::internal::net
