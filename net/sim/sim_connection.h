// One end of a simulated connection: an inbox, and who drains it.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "net/sim/world.h"

namespace troupe::internal::net::sim {

/// What arrives at an end, in order. `accepted` or `connected` is the first thing that does, `closed` the
/// last.
struct InboxItem {
  enum class Kind { accepted, connected, message, closed };
  Kind kind = Kind::message;
  Message message;
  std::optional<ConnectionPromise> promise;  // of accepted and connected: the connecting side's
  uint64_t number = 0;                       // of messages on links that lose and double them; 0: none
  std::string reason;                        // of closed
  bool tell_peer = false;                    // of closed: the other end does not know yet
  size_t bytes = 0;
};

/// Immediate mode: whoever puts something into an idle inbox drains it, through its thread's trampoline. A
/// thread that finds the inbox being drained only appends. So each end sees its items one at a time, in
/// order, without a thread of its own. Virtual time: each item comes with an event that delivers one.
class SimConnection final : public Connection, public std::enable_shared_from_this<SimConnection> {
 public:
  /// Makes both ends and starts the handshake. False if one of the nodes is leaving.
  static bool join(const std::shared_ptr<SimNode>& client, const std::shared_ptr<SimNode>& server,
                   ConnectionPromise promise);

  void send(Message message) override;
  size_t queued_bytes() const override;
  Future<void> writable() override;
  void close(const std::string& reason) override;
  const PeerInfo& peer() const override { return peer_info_; }
  std::shared_ptr<Connection> share() override { return shared_from_this(); }
  std::string address() const override { return "sim:" + peer_node_->name(); }

  // ---- for the network
  const SimNode& peer_node() const { return *peer_node_; }
  std::shared_ptr<SimConnection> other_end() const { return peer_.lock(); }
  const Limits& limits() const { return node_->limits(); }
  /// This side has opened the connection.
  bool opened() const { return opened_; }
  /// The other end closes after what is on its way there.
  void close_peer(const std::string& reason);
  /// Ends this side: what has not been delivered is dropped, then on_closed.
  void end(const std::string& reason, bool tell_peer);
  /// Both sides find out by silence, each after its own Limits::dead_after.
  void mark_lost();
  /// The transport goes: nothing is delivered any more; finish() completes it.
  void shut(const std::string& reason);
  /// Callbacks of the node are over: closed at once, with on_closed on this thread if it is still owed and
  /// `say`.
  void finish(const std::string& reason, bool say);
  /// Delivers up to `most` items; true if there may be more.
  bool drain(int most);

 private:
  enum class State { open, closing, closed };
  SimConnection(std::shared_ptr<SimNode> node, std::shared_ptr<SimNode> peer_node);
  bool push(InboxItem item, TimePoint when, bool overtake, bool check_room);
  bool push_over_link(InboxItem item, bool check_room);
  void schedule(std::unique_lock<internal::Mutex> lock, TimePoint when);
  bool deliver_next();
  void deliver_in_order(InboxItem item);
  void dispatch(InboxItem item);
  bool lost_on_the_way(const InboxItem& item);
  bool has_room(size_t bytes) const;
  void detach();
  std::string who() const;
  static void discard(std::deque<InboxItem>&& items);

  const uint64_t id_;
  const std::shared_ptr<SimNode> node_, peer_node_;
  std::weak_ptr<SimConnection> peer_;
  PeerInfo peer_info_;
  SimLink &out_, &in_;
  bool opened_ = false;
  uint64_t last_sent_ = 0, last_delivered_ = 0;  // numbers of messages, on the one thread of virtual time
  std::map<uint64_t, InboxItem> early_;          // by number

  mutable internal::Mutex mutex_;  // guards what follows
  State state_ = State::open;
  std::string why_;         // of the end
  bool announced_ = false;  // on_accepted ran, or the future of connect() was completed
  bool ended_ = false;      // the inbox takes nothing more
  bool draining_ = false;   // some thread is at it
  bool marked_lost_ = false;
  std::deque<InboxItem> inbox_;
  size_t queued_ = 0;                            // bytes in inbox_
  std::vector<Promise<void>> waiting_for_room_;  // of the other end
  TimePoint last_arrival_{};
};

/// What is wrong with the message, or nothing.
std::string over_limits(const Message& m, const Limits& limits);

}  // namespace troupe::internal::net::sim
