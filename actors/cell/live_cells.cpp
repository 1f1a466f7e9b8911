#include "actors/cell/live_cells.h"

#include <algorithm>

namespace troupe::internal::actors {

void LiveCells::made() {
  Lock lock(mutex_);
  ++count_;
}

void LiveCells::destroyed() {
  Lock lock(mutex_);  // the waiter may destroy this object once it has the lock
  --count_;
  none_.notify_all();
}

int64_t LiveCells::count() const {
  Lock lock(mutex_);
  return count_;
}

void LiveCells::wait_until_none() {
  Lock lock(mutex_);
  none_.wait(lock.native(), [&]() TROUPE_REQUIRES(mutex_) { return count_ == 0; });
}

DispatchHistory* LiveCells::histories(const ActorType& type, size_t kinds) {
  Lock lock(mutex_);
  auto& found = histories_[&type];
  if (!found) found = std::make_unique<DispatchHistory[]>(kinds);
  return found.get();
}

void LiveCells::retire(const ActorType& type, const std::vector<HandledCount>& handled) {
  if (handled.empty()) return;
  Lock lock(mutex_);
  auto& all = retired_[&type];
  all.resize(std::max(all.size(), handled.size()));
  for (size_t i = 0; i < handled.size(); ++i) all[i] += handled[i];
}

std::vector<std::pair<const ActorType*, std::vector<HandledCount>>> LiveCells::retired() const {
  Lock lock(mutex_);
  return {retired_.begin(), retired_.end()};
}

}  // namespace troupe::internal::actors
