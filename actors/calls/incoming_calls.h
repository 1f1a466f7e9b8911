// Calls of other workers that have arrived and have not been answered: the callee's half of cancellation.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "actors/runtime/cancellable.h"
#include "core/base/mutex.h"
#include "core/value/value.h"

namespace troupe::internal::actors {

/// Thread-safe. Messages of a connection arrive in order, so what is not here has been answered.
class IncomingCalls {
 public:
  /// Call `id` of worker `from`. False if there is such a call already: an honest peer gives no number twice.
  bool add(WorkerId from, uint64_t id, Ref<Cancellable> call);
  /// Call `id` was answered.
  void remove(WorkerId from, uint64_t id, const Cancellable& call);
  /// Call `id`, or null.
  Ref<Cancellable> find(WorkerId from, uint64_t id) const;
  /// All calls of worker `from`, in the order of their numbers.
  std::vector<Ref<Cancellable>> of(WorkerId from) const;
  std::vector<Ref<Cancellable>> all() const;
  void clear();
  size_t size() const;

 private:
  mutable Mutex mutex_;
  std::map<std::pair<WorkerId, uint64_t>, Ref<Cancellable>> calls_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::internal::actors
