// What the parts of one socket transport share: its two threads, its options, its connections.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "net/handshake.h"
#include "net/socket/loop.h"
#include "net/transport.h"

namespace troupe::net {

class SocketConnection;

/// Two threads: `delivery` reads from connections and runs the user's callbacks. `upkeep` does all that must
/// not wait for user code: it accepts, shakes hands, writes what callers could not, sends heartbeats, notices
/// silence.
class SocketCore : public std::enable_shared_from_this<SocketCore> {
 public:
  SocketCore(TransportOptions options, Events& events);

  const Limits& limits() const { return options_.limits; }
  const std::string& token() const { return options_.token; }
  PeerInfo self() const;
  void set_self(const PeerInfo& self);
  Events& events() { return events_; }
  TimePoint now() const { return Clock::system().now(); }

  /// Adds a connection: from now on it is kept alive, in both meanings.
  void add(const std::shared_ptr<SocketConnection>& connection);
  void remove(SocketConnection* connection);

  /// A line about somebody who was refused. At most ten a second; the rest is counted.
  void warn(const std::string& text);

  /// Closes everything, waits for it, stops both threads. Once.
  void shut_down();
  bool shutting_down() const { return shutting_down_.load(); }

 private:
  void tick();
  void schedule_tick();
  std::vector<std::shared_ptr<SocketConnection>> connections() const;

  TransportOptions options_;
  Events& events_;
  mutable std::mutex mutex_;
  std::condition_variable removed_;
  std::unordered_map<SocketConnection*, std::shared_ptr<SocketConnection>> connections_;
  std::atomic<bool> shutting_down_{false};
  bool ticking_ = false;
  Duration tick_;
  TimePoint last_tick_{}, watched_since_{};  // upkeep only

  std::mutex warn_mutex_;
  TimePoint warn_window_{};
  int warned_ = 0;
  uint64_t suppressed_ = 0;

 public:
  Loop delivery{"troupe-net"}, upkeep{"troupe-upkeep"};  // last: they stop before the rest goes away
};

}  // namespace troupe::net
