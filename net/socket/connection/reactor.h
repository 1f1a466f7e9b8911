// What the parts of one socket transport share: its two threads, its options, its connections.
#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/base/mutex.h"
#include "net/protocol/handshake.h"
#include "net/socket/connection/dial.h"
#include "net/socket/connection/socket_options.h"
#include "net/socket/loop/event_loop.h"
#include "net/socket/loop/spin_pause.h"
#include "net/socket/stream/stream.h"
#include "net/socket/stream/tls.h"

namespace troupe::internal::net {

class SocketConnection;

/// Two threads: `delivery` reads from connections and runs the user's callbacks. `upkeep` does all that must
/// not wait for user code: it accepts, shakes hands, writes what callers could not, sends heartbeats, notices
/// silence.
class Reactor : public std::enable_shared_from_this<Reactor> {
 public:
  /// `dials`: for connections whose sockets break; null: none is made again.
  Reactor(SocketOptions options, Events& events, BeginDial dials = nullptr);

  const SocketLimits& limits() const { return options_.limits; }
  const std::string& token() const { return options_.token; }
  uint64_t job() const { return job_; }
  /// Null: no link is encrypted.
  const TlsContext* tls() const { return tls_ ? &*tls_ : nullptr; }
  /// Whether bytes may go by this socket only if they are encrypted.
  bool encrypts(int fd) const;
  /// Whether it is somebody whom listeners let in, once that is proved.
  bool lets_in(const PeerInfo& peer) const {
    return options_.guests || standing_of(peer.id) == Standing::member;
  }
  /// One line, if whoever is on the way of this link may read it.
  void note_plain(int fd, const PeerInfo& peer);
  /// Another end dials on a socket: what it is told of its link.
  LinkWords asked(int fd, const LinkWords& theirs) const;
  /// The connection of such a dial. It is closed, if the link is not to have it.
  void comes_back(Stream stream, const LinkWords& answer, const LinkWords& theirs);
  /// A listener of this transport begins, or ends.
  void listens(int fd, bool on);
  /// The TCP port where this transport is reached at the address that this end of `fd` has; 0: none.
  uint16_t port_beside(int fd) const;
  /// Changes with listens().
  uint32_t listeners() const { return listeners_changed_.load(std::memory_order_relaxed); }
  bool can_dial() const { return dials_ != nullptr; }
  std::shared_ptr<Dial> dial(const Address& to, TimePoint deadline, const LinkWords& words, Dial::Made made,
                             Dial::Failed failed) {
    return dials_(shared_from_this(), to, deadline, words, std::move(made), std::move(failed));
  }
  PeerInfo self() const;
  void set_self(const PeerInfo& self);
  Events& events() { return events_; }
  TimePoint now() const { return Clock::system().now(); }

  /// Silence before it does not count, since this process was stopped itself; upkeep only.
  TimePoint watched_since() const { return watched_since_; }
  /// Adds a connection: from now on it is kept alive, in both meanings.
  void add(const std::shared_ptr<SocketConnection>& connection);
  void remove(SocketConnection* connection);
  std::vector<std::shared_ptr<SocketConnection>> connections() const;
  /// On all connections that there were.
  SentCounts sent() const;

  // ---- polling for messages before the delivery thread sleeps; on that thread, but for the callers
  /// Polls the ring of that connection, too, until nothing comes for a while.
  void polls(std::shared_ptr<SocketConnection> connection) { polled_.push_back(std::move(connection)); }
  /// A message came by a socket. Also from callers.
  void something_came() { came_.store(true, std::memory_order_relaxed); }
  /// Whether polling is allowed: not for a while after somebody else computed on a core where we polled. A
  /// thread that sleeps is soon let in by the kernel when it wakes; one that has used up its time polling
  /// waits behind others, and so does one that yields, from Linux 6.18 on for a whole time slice.
  bool may_poll(TimePoint now) const {
    return options_.limits.polling > Duration::zero() &&
           now.time_since_epoch().count() >= contended_until_.load(std::memory_order_relaxed);
  }
  /// From a thread that polled at `before` and saw nothing by `now`: whether somebody else had its core
  /// meanwhile.
  bool was_away(TimePoint before, TimePoint now);
  /// Whether a poll is followed by others' turns on this core: there are more processes than cores.
  bool yields() const {
    return options_.processes_here && options_.processes_here->load(std::memory_order_relaxed) > cores_;
  }
  /// Between two polls.
  void rest() const {
    if (yields())
      std::this_thread::yield();
    else
      spin_pause();
  }
  /// Whether a thread that polls may go to another core: not too often, whatever it hopes for there.
  bool may_move(TimePoint now);
  /// Callers that wait and read rings themselves: meanwhile the delivery thread does not poll.
  std::atomic<int> waiting_callers{0};

  /// A line about somebody who was refused. At most ten a second for each reason, so that many refused for
  /// one do not hide who was refused for another; the rest is counted.
  void warn(const std::string& text, Handshake::Refusal reason = Handshake::Refusal::none);

  /// Closes everything, waits for it, stops both threads. Once.
  void shut_down();
  bool shutting_down() const { return shutting_down_.load(); }

 private:
  void tick();
  void schedule_tick();
  bool poll();

  const int cores_;
  SocketOptions options_;
  const uint64_t job_;
  const std::optional<TlsContext> tls_;
  std::atomic<bool> noted_plain_{false};
  Events& events_;
  const BeginDial dials_;
  mutable internal::Mutex mutex_;
  std::condition_variable removed_;
  std::unordered_map<SocketConnection*, std::shared_ptr<SocketConnection>> connections_;
  SentCounts sent_{};  // on those that have ended
  std::vector<int> listeners_;
  std::atomic<uint32_t> listeners_changed_{0};
  std::atomic<bool> shutting_down_{false};
  bool ticking_ = false;
  Duration tick_;
  TimePoint last_tick_{}, watched_since_{};  // upkeep only

  std::vector<std::shared_ptr<SocketConnection>> polled_;  // delivery only, as those below
  std::atomic<bool> came_{false};
  std::atomic<int64_t> contended_until_{0};  // ns of the clock, as those below
  std::atomic<int64_t> contended_for_{0};
  std::atomic<int64_t> moved_at_{0};
  TimePoint last_came_{};
  bool busy_ = false;  // the last message came soon after the one before

  internal::Mutex warn_mutex_;
  struct Warned {
    TimePoint window{};
    int given = 0;
    uint64_t left_out = 0;
  };
  std::map<Handshake::Refusal, Warned> warned_;

 public:
  EventLoop delivery{"troupe-net"}, upkeep{"troupe-upkeep"};  // last: they stop before the rest goes away
};

}  // namespace troupe::internal::net
