// The actors of a worker that are alive, and what is known of the work of their types.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "actors/cell/handled_tally.h"
#include "actors/runtime/dispatch_history.h"
#include "core/base/mutex.h"

namespace troupe::internal::actors {

struct ActorType;

/// Thread-safe.
class LiveCells {
 public:
  void made();
  void destroyed();
  /// In the worker's table, or kept by their last jobs.
  int64_t count() const;
  void wait_until_none();
  /// Of `kinds` of work of actors of this type; alive as long as this object.
  DispatchHistory* histories(const ActorType& type, size_t kinds);
  /// What an actor that goes has handled (ActorCell::handled()).
  void retire(const ActorType& type, const std::vector<HandledCount>& handled);
  /// What all have handled that have gone.
  std::vector<std::pair<const ActorType*, std::vector<HandledCount>>> retired() const;

 private:
  mutable Mutex mutex_;
  std::condition_variable none_;
  int64_t count_ TROUPE_GUARDED_BY(mutex_) = 0;
  std::unordered_map<const ActorType*, std::unique_ptr<DispatchHistory[]>> histories_
      TROUPE_GUARDED_BY(mutex_);
  std::unordered_map<const ActorType*, std::vector<HandledCount>> retired_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::internal::actors
