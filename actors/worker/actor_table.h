// The actors of a worker.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/cell/actor_cell.h"
#include "core/base/mutex.h"

namespace troupe::internal::actors {

/// Thread-safe.
class ActorTable {
 public:
  void add(const std::shared_ptr<ActorCell>& cell);
  /// Null: there is none, or no more.
  std::shared_ptr<ActorCell> find(const ObjectId& id) const;
  std::vector<std::shared_ptr<ActorCell>> all() const;
  /// All that may be at work: these, and the ones that are released.
  std::vector<std::weak_ptr<ActorCell>> cells() const;
  std::vector<std::string> labels() const;
  /// Forgets the actor and destroys its object after what is in its mailbox.
  void release(const ObjectId& id);
  /// All of them; their coroutines get that error.
  void release_all(const Error& why);

 private:
  mutable Mutex mutex_;
  std::unordered_map<ObjectId, std::shared_ptr<ActorCell>> actors_ TROUPE_GUARDED_BY(mutex_);
  // No reference is left, but a coroutine may wait.
  std::vector<std::weak_ptr<ActorCell>> released_ TROUPE_GUARDED_BY(mutex_);
  size_t prune_released_at_ TROUPE_GUARDED_BY(mutex_) = 64;
};

}  // namespace troupe::internal::actors
