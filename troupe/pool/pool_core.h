// What a Pool has that does not depend on the type of its members.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/listed.h"
#include "core/base/mutex.h"
#include "rref/any_ref.h"
#include "troupe/cluster/cluster.h"
#include "troupe/pool/supervision.h"

namespace troupe {

struct PoolOptions {
  int size = 0;                           ///< members; 0: one for each of the workers
  std::vector<std::string> workers = {};  ///< empty: all of Cluster::workers() but the driver's
  RestartPolicy restart = {};
  int at_once = 1;                       ///< calls to whoever is free that a member has at a time
  std::optional<Duration> timeout = {};  ///< of a call, from when it goes to a member; empty: as calls
};

namespace internal {

/// Members of a pool, and tasks on their way to them. Thread-safe.
class PoolCore : public Listed<PoolCore>, public std::enable_shared_from_this<PoolCore> {
 public:
  /// Makes a member on a worker; does not wait.
  using Make = std::function<AnyRef(const std::string& worker)>;
  /// A task: `to` sends it to a member, and says by `ended` what it came to, null for well. If that gives
  /// true, the task has been taken from that member, and what came is not told. `fail` ends it.
  struct Work {
    using Ended = std::function<bool(const Error*)>;
    std::function<void(const AnyRef& member, Ended ended)> to;
    std::function<void(const Error&)> fail;
    std::string label;  ///< "Rollout::run"
  };

  static std::shared_ptr<PoolCore> create(Cluster& cluster, PoolOptions options, std::string type, Make make);
  ~PoolCore();
  /// No task any more, and no restart; tasks that are waiting fail with `cancelled`. Its members go.
  void end();

  void add(Work work, std::optional<size_t> member, int again);
  void on_start(std::function<void(size_t, const AnyRef&)> f);
  void on_lost(std::function<void(size_t, const std::string&)> f);

  size_t size() const { return places_; }
  AnyRef member(size_t i) const;
  int64_t incarnation(size_t i) const;
  const PoolOptions& options() const& { return options_; }
  const std::string& type() const& { return type_; }

  // ---- a job's checkpoints
  /// Nothing goes to members between these; false if some are being made at `until`.
  bool pause(TimePoint until);
  void resume();
  /// The worker of each actor of the pool, by path; empty: gone.
  std::map<std::string, std::string> where() const;
  std::vector<AnyRef> members() const;
  bool is_of(const Cluster& cluster) const { return &cluster_ == &cluster; }

 private:
  using Actions = Supervision::Actions;
  struct Member {
    AnyRef actor;
    std::string worker, path;
    WorkerId id = kNoWorker;
  };
  struct Job {  // for the thread
    size_t member;
    int64_t incarnation;
    bool made;  // it is there: on_start
  };
  PoolCore(Cluster& cluster, PoolOptions options, std::string type, Make make);
  void begin();
  void perform(Actions actions);
  void run();
  void make(size_t member, int64_t incarnation);
  void introduce(size_t member, int64_t incarnation);
  void lost(size_t member, int64_t incarnation, const Error& why);
  void worker_lost(WorkerId id, const Error& why);
  void seats_lost(const std::vector<Supervision::Seat>& seats, const Error& why);
  bool ended(Supervision::Task task, size_t member, int64_t incarnation, const Error* error);
  std::optional<std::string> place();
  std::optional<std::string> newcomer();
  Error end_of_pool() const TROUPE_REQUIRES(mutex_);
  Error lost_in_task(const Work& work) const TROUPE_REQUIRES(mutex_);

  Cluster& cluster_;
  const PoolOptions options_;
  const std::string type_;
  const Make make_;
  const size_t places_;
  std::thread thread_;

  mutable Mutex mutex_;
  std::condition_variable changed_;
  Supervision supervision_ TROUPE_GUARDED_BY(mutex_);
  std::vector<Member> members_ TROUPE_GUARDED_BY(mutex_);
  std::map<Supervision::Task, Work> works_ TROUPE_GUARDED_BY(mutex_);
  std::deque<Job> jobs_ TROUPE_GUARDED_BY(mutex_);
  std::function<void(size_t, const AnyRef&)> on_start_ TROUPE_GUARDED_BY(mutex_);
  std::function<void(size_t, const std::string&)> on_lost_ TROUPE_GUARDED_BY(mutex_);
  std::optional<Error> why_ TROUPE_GUARDED_BY(mutex_);  // of the last loss
  std::string lost_member_ TROUPE_GUARDED_BY(mutex_);
  Supervision::Task last_task_ TROUPE_GUARDED_BY(mutex_) = 0;
  bool opened_ TROUPE_GUARDED_BY(mutex_) = false;  // the first task has come
  bool ended_ TROUPE_GUARDED_BY(mutex_) = false;
};

}  // namespace internal
}  // namespace troupe
