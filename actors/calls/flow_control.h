// Back-pressure at the caller: how much is on its way to each worker and actor that has not begun there.
#pragma once
#include <cstddef>
#include <deque>
#include <optional>
#include <unordered_map>

#include "actors/calls/flow_limits.h"
#include "core/value/value.h"

namespace troupe {

namespace internal::actors {

/// A pure state machine; not synchronized. Calls of one worker to another leave in the order in which they
/// came: behind one that waits all wait. What takes part is counted from leaving until it has begun, not
/// until it has ended: methods never block, so what is on its way always begins, and calls that wait for
/// calls, whatever their depth and direction, cannot wait for room that they take themselves.
class FlowControl {
  struct Peer;
  struct Load;

 public:
  explicit FlowControl(FlowLimits limits) : limits_(limits) {}

  /// The room that one message takes.
  class Ticket {
   public:
    explicit operator bool() const { return peer_; }

   private:
    friend class FlowControl;
    Peer* peer_ = nullptr;
    Load* load_ = nullptr;
    size_t bytes_ = 0;
  };
  /// Room for a message to `actor`, or none: it has to wait, or to fail.
  Ticket enter(const ObjectId& actor, size_t bytes);
  /// More than half of the room is taken: whoever got this ticket asks to be told when its message has begun.
  /// (Below, replies are soon enough: what never asks takes half of the room at most.)
  bool scarce(const Ticket& ticket) const;
  /// The message has begun, or will not.
  void leave(Ticket& ticket);

  /// Whether some wait for worker `to`, or are about to leave: who came later is to wait behind them.
  bool line(WorkerId to) const;
  /// A message waits, behind those that do.
  void wait(uint64_t message, const ObjectId& actor, size_t bytes);
  /// There may be room for who waits for worker `to`, and nobody lets them go: the caller has to, with
  /// next(), until there are no more. (Meanwhile enter() gives no room: nobody overtakes.)
  bool begin_drain(WorkerId to);
  struct Next {
    uint64_t message;
    Ticket ticket;
  };
  /// The next that leaves; empty: no more for now. `alive` says which messages are still there.
  template <class Alive>
  std::optional<Next> next(WorkerId to, Alive&& alive) {
    Peer& peer = peers_[to];
    while (!peer.waiting.empty()) {
      const Waiting& first = peer.waiting.front();
      if (alive(first.message)) {
        if (!room(peer, loads_[first.actor])) break;
        const Next next{first.message, take(peer, loads_[first.actor], first.bytes)};
        peer.waiting.pop_front();
        return next;
      }
      peer.waiting.pop_front();
    }
    peer.draining = false;
    return std::nullopt;
  }

  struct Sums {
    size_t bytes = 0, messages = 0, waiting = 0;
  };
  Sums to(WorkerId peer) const;
  Sums all() const;
  const FlowLimits& limits() const { return limits_; }

 private:
  struct Waiting {
    uint64_t message;
    ObjectId actor;
    size_t bytes;
  };
  struct Peer {
    size_t bytes = 0, messages = 0;
    bool draining = false;
    std::deque<Waiting> waiting;
  };
  struct Load {
    size_t messages = 0;
  };
  bool room(const Peer& peer, const Load& load) const {
    return peer.bytes < limits_.bytes && load.messages < limits_.messages;
  }
  Ticket take(Peer& peer, Load& load, size_t bytes);

  const FlowLimits limits_;
  std::unordered_map<WorkerId, Peer> peers_;  // tickets point into both
  std::unordered_map<ObjectId, Load> loads_;  // pruned of zeros when it has doubled
  size_t prune_at_ = 1024;
};

}  // namespace internal::actors
}  // namespace troupe
