// The driver's view of a cluster: names of workers, and spawn.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "actors/calls/flow_limits.h"
#include "actors/cell/methods.h"
#include "core/base/fork.h"
#include "core/base/mutex.h"
#include "rref/here.h"
#include "troupe/checkpoint/checkpoints.h"
#include "troupe/launch/launch_environment.h"

namespace troupe {

struct Ways;

struct ShutdownOptions {
  bool graceful = true;                         ///< wait first until nothing is under way anywhere
  Duration timeout = std::chrono::seconds(60);  ///< for all of it
};

/// Devices of two workers that stand for each other in what these send each other, in both directions:
/// values, gradients, answers. `{"w1", "w2", {{"cuda:0", "cuda:1"}}}`: a tensor on cuda:0 of w1 arrives on
/// cuda:1 of w2, and comes back to cuda:0. One to one; a device that is not in the map of its pair is
/// refused.
struct DeviceMap {
  std::string worker, other;
  std::vector<std::pair<std::string, std::string>> devices;
};

struct ClusterOptions {
  Duration timeout = std::chrono::seconds(60);       ///< of calls that name none
  Duration join_timeout = std::chrono::seconds(60);  ///< for all workers to come together
  Duration shutdown_timeout =
      std::chrono::seconds(10);         ///< at the end of launch()'s driver, and of a Cluster
  int threads = 0;                      ///< of the pool of each process; 0: as many as cores
  std::optional<LeakCheck> leak_check;  ///< unset: TROUPE_LEAK_CHECK (off, warn, error), or warn
  FlowLimits limits = {};               ///< of calls of one worker that have not begun where they go
  OnFull on_full = OnFull::wait;        ///< what becomes of calls above them that do not choose
  bool elastic = false;                 ///< of the driver: workers may join later, and leave before the end
  /// Of pairs of workers whose devices are not those of the same name. The same for all workers; a worker
  /// that lacks one of its devices there does not start (`invalid`).
  std::vector<DeviceMap> device_maps = {};
  /// Of its Job; every process writes to this folder alone.
  Checkpoints checkpoints = {};
};

/// Workers w0, w1, ... This process drives, as worker w0. Thread-safe. Destruction ends all workers at once,
/// if shutdown() has not; references that outlive it fail with `cancelled` when used.
class Cluster {
 public:
  virtual ~Cluster() = default;

  /// Ends all workers, and waits until they know. A graceful one waits before that until nothing is under way
  /// on any of them, started by whomever: calls, one-way calls and what they lead to, backward passes. Then
  /// it drops all names and gives up the references that w0 holds, so that actors go, and looks for what is
  /// left (LeakCheck).
  ///
  /// Throws, once everything here has ended: `deadline`, naming what was still under way and which workers
  /// did not answer; `disconnected`, naming a worker that was lost meanwhile; `failed` for leaks. Later calls
  /// fail with `cancelled`. A second shutdown() does nothing. Another cluster may be made afterwards.
  void shutdown(const ShutdownOptions& options = {});

  /// What becomes of leaks that a destructor finds, which cannot throw: without it, a log line. For test
  /// programs, which let it fail the test. Not thread-safe: call it before the first cluster.
  static void on_leak(std::function<void(const Error&)> f);

  /// `workers` workers in this process, linked in memory. Their messages are copied as if they had crossed a
  /// process boundary: the same program gives the same bits as over real processes.
  static std::unique_ptr<Cluster> in_process(int workers, internal::actors::TypeRegistry hosting = {},
                                             ClusterOptions options = {});
  /// This process is worker 0 of a cluster of processes; returns when all have joined. The environment's
  /// join_timeout comes before that of the options. `stop`, once it has failed, ends the wait with its error:
  /// somebody knows that one of them will not come.
  static std::unique_ptr<Cluster> coordinate(const LaunchEnvironment& environment,
                                             internal::actors::TypeRegistry hosting,
                                             ClusterOptions options = {}, const Future<void>& stop = {});

  /// Makes an actor of type T on a worker: Here::spawn, from worker w0.
  template <class T, class... A>
  RRef<T> spawn(const Place& worker, A&&... args) {
    return here().spawn<T>(worker, std::forward<A>(args)...);
  }
  /// Named actors: Here::spawn_named, lookup, set_name and drop_name, from worker w0.
  template <class T, class... A>
  RRef<T> spawn_named(const std::string& name, A&&... args) {
    return here().spawn_named<T>(name, std::forward<A>(args)...);
  }
  template <class T>
  Future<RRef<T>> lookup(const std::string& name, Lookup how = {}) {
    return here().lookup<T>(name, how);
  }
  Future<void> set_name(const AnyRef& ref, const std::string& name) { return here().set_name(ref, name); }
  Future<void> drop_name(const std::string& name) { return here().drop_name(name); }
  /// The cluster as code on worker w0 sees it.
  Here here() { return Here(table_); }

  internal::actors::Worker& worker() { return *worker_; }
  operator internal::actors::Worker&() { return *worker_; }
  /// Those of this process: w0, or all.
  virtual std::vector<internal::actors::Worker*> workers_here() const = 0;
  /// Workers that programs spread over: not spares.
  std::vector<std::string> workers() const;
  /// Workers of an elastic job (`troupe run --elastic`) that wait for somebody to be lost, with nothing on
  /// them.
  std::vector<std::string> spares() const;
  /// Whether workers come and go, as `troupe run --elastic` or ClusterOptions::elastic has it.
  bool elastic() const { return options_.elastic; }
  /// Ready once a worker of that name is a member: of an elastic cluster (ClusterOptions), workers join
  /// later.
  Future<void> joined(const std::string& worker);
  /// Counters of a worker: actors, contexts, send_nodes, owned_references, pending_calls, ...
  std::map<std::string, int64_t> metrics(const std::string& worker);
  /// Which way tensors take between the devices of all workers (troupe/ways/ways.h), as things are now: for
  /// messages and for operations of groups, from which size on, and why none better. Nothing is sent that
  /// way for it, and no device is taken.
  Ways ways();
  /// Where its jobs keep their checkpoints.
  const Checkpoints& checkpoints() const& { return options_.checkpoints; }
  Checkpoints checkpoints() && { return std::move(options_.checkpoints); }
  /// Exit code that the other workers are given at the end; 0 unless set.
  void set_exit_code(int code) { exit_code_ = code; }

  // ---- not for users: attempts at the steps of a job
  const ElasticJob& elastic_job() const& { return elastic_job_; }
  ElasticJob elastic_job() && { return elastic_job_; }
  /// The spare is one of workers() from now on.
  void use_spare(const std::string& worker);
  /// Whoever is asked for its end (SIGTERM) waits from now on until it is let go.
  void let_leave_between_steps();
  /// Workers that wait so.
  std::vector<std::string> leaving() const;
  void let_go(const std::string& worker);

  // ---- not for users: a driver's function that begins again
  /// Waits until nothing is under way on those that live, drops all names, and lets everybody go that asked
  /// to leave. What is left then that somebody made, in a sentence; empty: nothing.
  std::string clear(TimePoint deadline);
  /// Names count anew, so that what is made now is called as what was made first; jobs go on from their
  /// checkpoints.
  void begin_again();
  /// Lost or let go before that.
  bool is_of_before(WorkerId worker) const;
  /// A job has made a checkpoint.
  void note_commit() { ++commits_; }
  int64_t commits() const { return commits_; }

 protected:
  explicit Cluster(const ClusterOptions& options, const ElasticJob& elastic = {});
  /// Lets no newcomer in any more. Ready when nobody is being let in.
  virtual Future<void> close_doors() { return Future<void>::ready({}); }
  /// Ends all workers; names those that did not answer. Once.
  virtual std::vector<std::string> end(Duration grace) = 0;
  /// True for the first caller: it is to end the cluster.
  bool begin_end() {
    end_refused_child("the end of a cluster");
    return !ending_.exchange(true);
  }
  /// Of a destructor: if leaks are errors and nothing has failed, looks for them. Not where work goes on that
  /// would be cut off: leaks cannot be told from what it holds.
  void look_for_leaks();

  internal::actors::Worker* worker_ = nullptr;
  std::shared_ptr<internal::rref::RefTable> table_;
  int exit_code_ = 0;
  ClusterOptions options_;
  ElasticJob elastic_job_;
  /// False: it ends at once.
  bool note_leaver(const std::string& worker);

 private:
  bool is_spare(const internal::actors::Member& member) const TROUPE_REQUIRES(members_mutex_);
  mutable internal::Mutex members_mutex_;
  std::set<std::string> used_spares_ TROUPE_GUARDED_BY(members_mutex_);
  std::set<std::string> leaving_ TROUPE_GUARDED_BY(members_mutex_);
  std::set<std::string> let_go_ TROUPE_GUARDED_BY(members_mutex_);
  std::set<WorkerId> of_before_ TROUPE_GUARDED_BY(members_mutex_);
  bool leave_between_steps_ TROUPE_GUARDED_BY(members_mutex_) = false;
  std::optional<Error> settle_and_look(TimePoint deadline);
  void drop_names(TimePoint deadline);
  std::atomic<bool> ending_{false};
  std::atomic<int64_t> commits_{0};
};

/// A worker process that drives nothing.
class WorkerProcess {
 public:
  /// Joins; returns when all have. Throws as internal::actors::Joiner::join.
  static std::unique_ptr<WorkerProcess> join(const LaunchEnvironment& environment,
                                             internal::actors::TypeRegistry hosting,
                                             ClusterOptions options = {});
  virtual ~WorkerProcess() = default;
  virtual internal::actors::Worker& worker() = 0;
  /// Serves until the driver ends the cluster, whose exit code it returns; or until `stop` has a value, and
  /// returns that. Throws `disconnected` if the driver is lost.
  virtual int serve(const Future<int>& stop) = 0;
  /// Ready once the driver has ended the cluster, with its exit code, or was lost: serve() returns when the
  /// method has that its thread runs.
  virtual Future<int> ended() const = 0;
  /// Leaves an elastic cluster (ClusterOptions::elastic) before its end: serve() returns 0. What is under way
  /// here, and later uses of what lives here, fail elsewhere with `disconnected`: "w3 has left the cluster".
  /// `invalid` if the cluster is not elastic.
  virtual void leave() = 0;
  /// Ready once the driver lets it go, which has asked for its end.
  virtual Future<void> let_go() const = 0;
};

}  // namespace troupe
