#include "actors/cell/live_cells.h"

namespace troupe::internal::actors {

void LiveCells::made() {
  std::lock_guard lock(mutex_);
  ++count_;
}

void LiveCells::destroyed() {
  std::lock_guard lock(mutex_);  // the waiter may destroy this object once it has the lock
  --count_;
  none_.notify_all();
}

int64_t LiveCells::count() const {
  std::lock_guard lock(mutex_);
  return count_;
}

void LiveCells::wait_until_none() {
  std::unique_lock lock(mutex_);
  none_.wait(lock, [&] { return count_ == 0; });
}

DispatchHistory* LiveCells::histories(const ActorType& type, size_t kinds) {
  std::lock_guard lock(mutex_);
  auto& found = histories_[&type];
  if (!found) found = std::make_unique<DispatchHistory[]>(kinds);
  return found.get();
}

}  // namespace troupe::internal::actors
