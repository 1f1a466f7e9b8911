// The contexts in which a worker takes part: which live, who else takes part, and which have ended.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "actors/worker/worker.h"
#include "autograd/distributed/context_state.h"
#include "autograd/distributed/ended_contexts.h"
#include "core/base/mutex.h"

namespace troupe::autograd {

/// Thread-safe.
class Contexts {
 public:
  using StatePtr = std::shared_ptr<ContextState>;
  /// `end_passes` ends the passes of a context that is over.
  Contexts(internal::actors::Worker& worker,
           std::function<void(const ContextState&, const Error& why)> end_passes);

  /// The number of a new one, which starts here.
  uint64_t create();
  /// Forgets the context here and at once, and tells the others. Ready when it is forgotten everywhere;
  /// without `wait`, when they have been told.
  Future<void> release(uint64_t context, bool wait) { return forget(context, 0, wait); }

  /// State of the context here, made if new, because of a message of worker `from`, or of nobody known;
  /// `invalid` if it has ended.
  StatePtr join(uint64_t context, WorkerId from = kNoWorker) TROUPE_EXCLUDES(mutex_);
  /// Null if there is none.
  StatePtr find(uint64_t context) const TROUPE_EXCLUDES(mutex_);
  /// An empty one, of which nobody else knows, if there is none; `invalid` if the context has ended or never
  /// was.
  StatePtr find_live(uint64_t context) const TROUPE_EXCLUDES(mutex_);
  /// Throws `invalid` if the context, one of this worker, has ended.
  void check_live(uint64_t context);
  /// Throws `disconnected` if the context ended with its originator, else `kind`.
  [[noreturn]] void throw_ended(uint64_t context, ErrorKind kind) const;
  size_t size() const;

  /// The contexts of a lost worker, which have ended with it, and all others.
  struct Lost {
    std::vector<StatePtr> ended, others;
  };
  Lost worker_lost(WorkerId id);
  /// No more contexts. Returns those that there were.
  std::map<uint64_t, StatePtr> stop();

 private:
  bool ended(uint64_t context) const TROUPE_REQUIRES(mutex_);
  void check_number(uint64_t context) const TROUPE_REQUIRES(mutex_);
  uint64_t lowest_live() const TROUPE_REQUIRES(mutex_);  // of the contexts of this worker
  Future<void> forget(uint64_t context, uint64_t below, bool wait) TROUPE_EXCLUDES(mutex_);
  void on_joined(WorkerId from, uint64_t context) TROUPE_EXCLUDES(mutex_);
  void check_running() const TROUPE_REQUIRES(mutex_);

  internal::actors::Worker& worker_;
  const std::function<void(const ContextState&, const Error&)> end_passes_;
  mutable internal::Mutex mutex_;
  bool stopped_ TROUPE_GUARDED_BY(mutex_) = false;
  uint64_t last_context_ TROUPE_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, StatePtr> contexts_ TROUPE_GUARDED_BY(mutex_);
  // Contexts of others: late calls must not bring them back.
  std::unordered_map<WorkerId, EndedContexts> ended_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::autograd
