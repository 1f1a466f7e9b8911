// A cluster as a script sees it: types, methods and workers by name, and waits that can be interrupted.
#pragma once
#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "actors/worker/reports.h"
#include "core/base/mutex.h"
#include "core/entry/entry.h"
#include "script/step.h"
#include "troupe/cluster/cluster.h"

namespace troupe::script {

using internal::actors::TypeReport;
using internal::actors::WorkerReport;

/// Thrown out of waits after interrupt(), until resume().
struct Interrupted : std::exception {
  const char* what() const noexcept override { return "interrupted"; }
};

/// What the scripts of one interpreter have to do with a cluster. Threads may share it.
class Session {
 public:
  explicit Session(Cluster& cluster) : cluster_(cluster) {}
  Cluster& cluster() { return cluster_; }
  internal::actors::Worker& worker() { return cluster_.worker(); }

  // ---- types
  /// What worker `of` can host. Asked once, and kept.
  const std::vector<TypeReport>& types(WorkerId of);
  /// A type of that worker, by its name with or without its namespaces; `invalid` with the nearest name.
  const TypeReport& type(WorkerId of, const std::string& name);
  /// The methods of an actor; none of a value.
  std::vector<Entry> methods(const AnyRef& actor);

  // ---- actors
  /// Makes an actor of a type that the worker has, from arguments by position, or by the names that doc<>
  /// gives them. A constructor that the program uses somewhere will do, listed or not. Waits until the actor
  /// has been made.
  AnyRef spawn(const std::string& type, const Place& where, ValueList args, ValueMap named = {},
               const std::string& name = {});
  /// Calls a method; arguments as of spawn(). `later`: positions of arguments that are still on their way,
  /// for which the call waits without the thread. Those of them that are results of calls go straight from
  /// worker to worker, and their futures are to be looked at through whole() from then on. Without a step, no
  /// gradients are recorded. cancel() of the future ends the call; dropping it does not, if keep() has it.
  using Later = std::vector<std::pair<size_t, Future<Value>>>;
  Future<Value> call(const AnyRef& actor, const std::string& method, ValueList args, ValueMap named,
                     const std::shared_ptr<Step>& step, Later later = {});

  /// The arguments of a method of that actor in the order of its parameters, as call() sends them; `invalid`
  /// where the actor has no such method, naming the nearest.
  ValueList arguments(const AnyRef& actor, const std::string& method, ValueList args, ValueMap named);

  /// What call() gave, or, if that result went to another worker, another copy of it, fetched now. Gradients
  /// of the copy are those of its own uses: hooks and grad() refuse it.
  Future<Value> whole(const Future<Value>& future, const std::shared_ptr<Step>& step) const;

  // ---- waiting
  /// The result, once it is there. Interrupted after interrupt(), also if it was called before; the future
  /// stays good.
  template <class T>
  const Result<T>& wait(const Future<T>& future) {
    check();
    while (!future.wait_for(kSlice)) {
      look();
      check();
    }
    return future.wait();
  }
  /// Its value, or its error, thrown. A call that nobody else can wait for is cancelled if the wait is
  /// interrupted.
  template <class T>
  T get(const Future<T>& future) {
    try {
      const Result<T>& r = wait(future);
      if constexpr (std::is_void_v<T>)
        (void)r.value();
      else
        return r.value();
    } catch (const Interrupted&) {
      future.cancel();
      throw;
    }
  }
  /// Runs back in a step; if it is interrupted, the pass is given up on all workers.
  template <class T>
  T get_pass(Step& step, const Future<T>& pass) {
    try {
      return get(pass);
    } catch (const Interrupted&) {
      if (step.open()) step.abandon();
      throw;
    }
  }
  /// From a signal handler, too: what this process waits for in a session ends now.
  static void interrupt() noexcept { interrupted_ = true; }
  static void resume() noexcept { interrupted_ = false; }
  static bool interrupted() noexcept { return interrupted_; }
  static void check() {
    if (interrupted_) throw Interrupted();
  }
  /// Asked by every wait, 50 times a second: true ends it as interrupt() does, but only this one. For
  /// languages that look for signals themselves.
  static void look_by(bool (*looks)()) { looks_ = looks; }
  static void look() {
    if (bool (*const looks)() = looks_.load(); looks && looks()) throw Interrupted();
  }

  /// What it comes from goes on although the future is dropped, and its error is told if nobody looks. A
  /// number for seen().
  uint64_t keep(const Future<Value>& future, std::string what);
  struct Failure {
    std::string text;
    ErrorKind kind;
  };
  /// Errors of calls that ended meanwhile, and whose results nobody asked for; each once.
  std::vector<Failure> unseen_failures();
  /// Somebody looked at the result, or waits for it: its error needs no telling.
  void seen(uint64_t number);

 private:
  static constexpr Duration kSlice = std::chrono::milliseconds(20);
  static inline std::atomic<bool> interrupted_{false};
  static inline std::atomic<bool (*)()> looks_{nullptr};

  struct Kept {
    Future<Value> future;
    std::string what;
    uint64_t number;
  };
  Cluster& cluster_;
  internal::Mutex mutex_;
  std::map<WorkerId, std::vector<TypeReport>> types_ TROUPE_GUARDED_BY(mutex_);  // what is there stays
  std::vector<Kept> kept_ TROUPE_GUARDED_BY(mutex_);  // calls without an answer, so that they go on
  size_t prune_at_ TROUPE_GUARDED_BY(mutex_) = 64;
  uint64_t last_number_ TROUPE_GUARDED_BY(mutex_) = 0;
  std::vector<Failure> failures_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::script
