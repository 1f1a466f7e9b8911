// The inside of the simulated network: its nodes, its links, and the heap of events of virtual time.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/base/generator.h"
#include "core/base/mutex.h"
#include "net/sim/network.h"
#include "net/transport.h"

namespace troupe::internal::net::sim {

class SimConnection;
class World;
using ConnectionPromise = Promise<std::shared_ptr<Connection>>;

/// One direction between two nodes. Lives as long as the World.
struct SimLink {
  std::string from, to;
  std::atomic<uint64_t> messages{0}, bytes{0}, dropped{0}, duplicated{0}, reordered{0};
  std::atomic<bool> cut{false};   // partitioned
  std::atomic<uint64_t> cuts{0};  // how often so far: tells one partition from the next
  std::optional<Faults> faults;   // guarded by World's mutex, as is busy_until
  TimePoint busy_until{};
  LinkCounters counters() const { return {messages, bytes, dropped, duplicated, reordered}; }
};

/// What a transport is to the network. Outlives the transport where connections or events still name it.
class SimNode : public std::enable_shared_from_this<SimNode> {
 public:
  SimNode(std::shared_ptr<World> world, std::string name, TransportOptions options, Events& events);

  const std::string& name() const { return name_; }
  const Limits& limits() const { return options_.limits; }
  const std::string& token() const { return options_.token; }
  World& world() const { return *world_; }
  Events& events() const { return events_; }
  PeerInfo self() const;
  void set_self(const PeerInfo& self);

  /// False once the node is leaving: the connection must not come to life.
  bool add(uint64_t id, std::shared_ptr<SimConnection> connection);
  void remove(uint64_t id);
  std::vector<std::shared_ptr<SimConnection>> connections() const;
  void count(const Message& message);
  SentCounts sent() const;
  /// No connection is added from now on.
  void leave();
  bool leaving() const;

  /// A callback into `events` runs while this lives. False if callbacks are over.
  class Callback {
   public:
    explicit Callback(SimNode& node);
    ~Callback();
    Callback(const Callback&) = delete;
    explicit operator bool() const { return entered_; }

   private:
    SimNode& node_;
    bool entered_;
  };
  /// Callbacks are over.
  void stop_callbacks();
  /// Waits for those that run on other threads.
  void wait_for_callbacks();

  std::atomic<bool> listening{false};
  std::atomic<bool> silent{false};  // what it sends goes nowhere

 private:
  static constexpr uint32_t kStopped = 1u << 31;  // of gate_; the other bits count running callbacks
  std::shared_ptr<World> world_;
  std::string name_;
  TransportOptions options_;
  Events& events_;
  std::atomic<uint32_t> gate_{0};
  mutable internal::Mutex mutex_;  // guards what follows
  PeerInfo self_;
  SentCounts sent_{};
  bool leaving_ = false;
  std::map<uint64_t, std::shared_ptr<SimConnection>> connections_;  // by number: the same order in every run
};

/// Where a message goes and when. Decided when it is sent.
struct Route {
  TimePoint arrival{};
  bool drop = false, duplicate = false, reorder = false;
  bool numbered = false;  // Faults::resend
};

/// Thread-safe. In virtual time, determinism needs that one thread does everything.
class World : public std::enable_shared_from_this<World> {
 public:
  World(uint64_t seed, bool virtual_time);

  const bool virtual_time;
  Observer* observer = nullptr;  // virtual time only
  const Clock& clock() const { return virtual_time ? static_cast<const Clock&>(manual_) : Clock::system(); }
  uint64_t next_id() { return ++ids_; }

  // ---- virtual time
  void at(TimePoint time, std::function<void()> f);
  void after(Duration d, std::function<void()> f) { at(later(d), std::move(f)); }
  /// Now + d, or the end of time.
  TimePoint later(Duration d) const {
    const TimePoint now = clock().now();
    return d > TimePoint::max() - now ? TimePoint::max() : now + d;
  }
  /// Runs the next event unless it is later than `limit`.
  bool step(TimePoint limit);
  void advance_to(TimePoint time);
  /// Events are left.
  bool pending() const;
  /// Draws the fate of a message of `bytes`. Control messages (handshake, end of stream) are never lost or
  /// doubled.
  Route route(SimLink& link, size_t bytes, bool control);

  // ---- links
  SimLink& link(const std::string& from, const std::string& to);
  const SimLink* find_link(const std::string& from, const std::string& to) const;
  LinkCounters all_counters() const;
  void set_faults(const Faults& faults);
  void set_faults(SimLink& link, const Faults& faults);

  // ---- nodes
  void add(const std::shared_ptr<SimNode>& node);
  void remove(const SimNode& node);
  std::shared_ptr<SimNode> find(const std::string& name) const;

  // ---- connecting
  void connect(const std::shared_ptr<SimNode>& from, const std::string& to, bool retry,
               ConnectionPromise promise);
  /// Those who wait for `name` try again.
  void retry_waiting(const std::string& name);
  /// Ends what waits: from one node, or (null) everywhere.
  void fail_waiting(const SimNode* from, const std::string& why);

  /// The Network is gone: nothing moves any more in virtual time, nobody waits.
  void stop();

 private:
  struct Event {
    TimePoint time;
    uint64_t number;
    std::function<void()> f;
    bool operator<(const Event& o) const {  // for a heap with the earliest on top
      return time != o.time ? time > o.time : number > o.number;
    }
  };
  struct Waiter {
    uint64_t number;
    std::shared_ptr<SimNode> from;
    std::string to;
    ConnectionPromise promise;
    TimePoint deadline;
    bool travelling = false;  // virtual time: has not reached the other side for the first time
    std::unique_ptr<SimNode::Callback> taken;  // its transport waits for whoever has taken it from the list
  };
  void attempt(Waiter waiter, bool retry);
  bool enlist(Waiter waiter);  // false (and failed) if the network is gone
  void wait(Waiter waiter);
  void expire(uint64_t number);
  void watch_deadlines();
  std::vector<Waiter> take_waiters(const std::function<bool(const Waiter&)>& which);

  ManualClock manual_;
  std::atomic<uint64_t> ids_{0};
  mutable internal::Mutex mutex_;  // guards what follows
  Generator random_;
  Faults faults_;
  std::vector<Event> events_;
  uint64_t events_made_ = 0;
  bool stopped_ = false;
  std::map<std::pair<std::string, std::string>, std::unique_ptr<SimLink>> links_;
  std::map<std::string, std::weak_ptr<SimNode>> nodes_;
  std::vector<Waiter> waiting_;
  std::condition_variable waiting_changed_;
  std::thread deadlines_;  // real time only, started by the first who waits
};

/// "silent for 5000 ms".
std::string silent_for(Duration silence);
/// The error of a connection or connection attempt that ended.
Error disconnected(const std::string& peer, const std::string& why);

std::unique_ptr<Transport> make_transport(std::shared_ptr<World> world, const std::string& name,
                                          TransportOptions options, Events& events);

}  // namespace troupe::internal::net::sim
