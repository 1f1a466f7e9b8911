// A cluster on a simulated network and clock: one thread, virtual time, a function of its seed.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/calls/flow_limits.h"
#include "net/sim/network.h"
#include "troupe/cluster/cluster.h"
#include "troupe/simulated/simulated_fault.h"

namespace troupe {

struct SimulatedOptions {
  LinkFaults links = {};                        ///< of all links, until set_links()
  Duration timeout = std::chrono::seconds(60);  ///< of calls that name none
  FlowLimits limits = {};                       ///< of calls of one worker that have not begun where they go
  std::vector<std::string> hosts = {};          ///< of each worker; empty: all are on one
};

/// Workers w0, w1, ... on a simulated network and a clock of their own, all on the thread that makes them.
/// That thread drives, as the function that launch() runs: it spawns, calls, waits with get(), trains. Time
/// passes, and messages travel, only while it waits: so nothing takes longer for a delay, and the same seed
/// gives the same run, message by message.
///
/// Where nothing is left to happen, and the thread waits, its wait throws `failed`. No other thread may use
/// the cluster, and its own waits for nothing else, of another cluster, say, while this one lives.
class SimulatedCluster final : public Cluster {
 public:
  /// `hosting`: actor types that are made by name only, hosting<Layer, Server>().
  explicit SimulatedCluster(uint64_t seed, int workers = 3, internal::actors::TypeRegistry hosting = {},
                            const SimulatedOptions& options = {});
  ~SimulatedCluster() override;

  // ---- what breaks; all of it may be called while messages are under way, by after() or watch(), say
  /// Holds for all links from now on.
  void set_links(const LinkFaults& faults);
  /// Holds for one link, in one direction.
  void set_links(const std::string& from, const std::string& to, const LinkFaults& faults);
  /// The worker does nothing more, and the others hear that it has gone: at once, or with `last_words` after
  /// what it has sent. `invalid` for w0, which drives. Once.
  void kill(const std::string& worker, bool last_words = false);
  bool is_alive(const std::string& worker) const;
  /// The connections that `from` has opened to `to` break: the two lose each other.
  void reset(const std::string& from, const std::string& to);
  /// Messages between the two are lost until heal(), whatever faults of plan() begin and end meanwhile. They
  /// lose each other, by silence, 5 s after the first.
  void partition(const std::string& a, const std::string& b);
  void heal(const std::string& a, const std::string& b);
  /// Each breaks once, at its message.
  void plan(std::vector<SimulatedFault> faults);

  /// A run in which more messages are sent has failed, as one that does not end: the next wait throws.
  void limit_messages(uint64_t most);

  // ---- time
  /// Since the start of the run.
  Duration now() const;
  /// Runs f after that time, while the driver waits.
  void after(Duration time, std::function<void()> f);
  /// One event, and the deadlines that have passed by then. False: nothing is left to happen.
  bool step();
  /// Waits as long.
  void pass(Duration time);
  /// Until nothing is left to happen.
  void settle();
  /// Does what future.wait() does.
  template <class T>
  Result<T> await(const Future<T>& future) {
    await_ready(future);
    return *future.peek();
  }

  // ---- what there is
  /// The cluster as code on that worker sees it: here(2).spawn<Layer>(1) is a spawn from w2 on w1.
  Here here(size_t worker) const;
  using Cluster::here;
  using Cluster::worker;
  /// How many messages have been sent, arrived and been handled so far.
  uint64_t messages(SimulatedFault::Moment moment = SimulatedFault::Moment::sending) const;
  /// How many faults of plan() have found what they break.
  uint64_t faults_met() const;
  /// Keeps what messages of actors say, from now on, for log().
  void keep_log();
  /// "12  1.002 ms  w0 to w2: call of deposit".
  std::vector<std::string> log() const;
  /// What living workers still have of what the driver made: "w1: actors 2, pending_calls 1". Empty when it
  /// has let go of all.
  std::string left() const;
  std::vector<internal::actors::Worker*> workers_here() const override;

  // ---- not for users
  internal::net::Network& network();
  internal::actors::Worker& worker(size_t i) const;

 private:
  struct World;
  void await_ready(const FutureBase& future);
  std::vector<std::string> end(Duration) override;
  std::unique_ptr<World> world_;
};

}  // namespace troupe
