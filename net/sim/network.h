// A network in memory: the transport of clusters inside one process, and a simulator of bad networks.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "net/sim/link_faults.h"
#include "net/transport.h"

namespace troupe::internal::net {

using Faults = LinkFaults;

struct LinkCounters {
  uint64_t messages = 0, bytes = 0, dropped = 0, duplicated = 0, reordered = 0;
};

/// Sees every message of a network in virtual time, and may act on what it sees: crash, reset, partition,
/// schedule.
class Observer {
 public:
  virtual ~Observer() = default;
  /// `from` is about to send. It does not if it crashes here, or its connection breaks.
  virtual void sending(const std::string& /*from*/, const std::string& /*to*/, const Message&) {}
  /// The message is there. It is lost if `to` crashes here.
  virtual void arriving(const std::string& /*from*/, const std::string& /*to*/, const Message&) {}
  /// `to` has dealt with it.
  virtual void handled(const std::string& /*from*/, const std::string& /*to*/) {}
};

/// What was on its way from a node that crashes.
enum class InFlight {
  lost,     ///< the others hear of the end at once
  arrives,  ///< the others hear of the end after it
};

/// Named nodes and the links between them. Two modes:
///   * immediate (`virtual_time` false): no delay; a message is delivered on the thread that sends it, or
///   after
///     another one, while that thread is delivering it. This is what in-process clusters run on.
///   * virtual time: nothing moves until step() or run(); delivery order is a function of the seed alone.
/// Tensors are copied on the way, as if they had crossed a process boundary; those of devices when either
/// side writes to them.
class Network {
 public:
  explicit Network(uint64_t seed = 0, bool virtual_time = false);
  ~Network();

  /// A transport for node `name`; listens on "sim:<name>" whatever address it is given.
  /// `invalid` for a name in use. It may outlive the network; never destroy it inside a callback of its own.
  std::unique_ptr<Transport> make_transport(const std::string& name, TransportOptions options,
                                            Events& events);

  /// The virtual clock (the system's clock in immediate mode).
  const Clock& clock() const;
  /// Delivers the next message or timer event; false if there is none. Virtual time only.
  bool step();
  /// Runs until nothing is left to do or virtual time reaches now + limit. Returns the number of events.
  uint64_t run(Duration limit = std::chrono::hours(1));
  /// Runs f at now + after, in virtual time.
  void schedule(Duration after, std::function<void()> f);

  void set_faults(const Faults& faults);  ///< of every link; virtual time only
  void set_faults(const std::string& from, const std::string& to, const Faults& faults);
  /// Messages between the two are lost, both ways, until heal(). A connection that lost one dies of silence
  /// after Limits::dead_after, healed or not, without a gap before; one that lost none survives a shorter
  /// partition. Immediate mode has no silence: connections end at once.
  void partition(const std::string& a, const std::string& b);
  void heal(const std::string& a, const std::string& b);
  /// The node is gone, and nobody hears of that before crash(): from now on nothing leaves it and nothing
  /// reaches it, though its own threads may go on. No handler runs inside, so it may be called anywhere.
  void silence(const std::string& name);
  /// The node is gone: its connections break at the other end, and it hears nothing any more.
  void crash(const std::string& name, InFlight in_flight = InFlight::lost);
  /// The connections that `from` has opened to `to` break: at once there, after what is on its way here.
  void reset(const std::string& from, const std::string& to);
  /// Virtual time only; null: nobody. Not owned.
  void observe(Observer* observer);
  LinkCounters counters(const std::string& from, const std::string& to) const;
  LinkCounters counters() const;

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace troupe::internal::net
