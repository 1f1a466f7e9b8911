// The links that a worker knows, by the workers that they are between.
#pragma once
#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <vector>

#include "collective/schedule/links.h"
#include "core/base/mutex.h"
#include "core/value/owned_number.h"

namespace troupe::internal::collective {

/// Thread-safe.
class MeasuredLinks {
 public:
  using Workers = std::vector<WorkerId>;  // sorted, each once
  static Workers workers_of(const std::vector<ObjectId>& members) {
    Workers all;
    for (const ObjectId& m : members) all.push_back(m.owner);
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }
  void remember(const std::vector<ObjectId>& members, const Links& links) {
    const Lock lock(mutex_);
    known_[workers_of(members)] = links;
    some_ = true;
  }
  std::optional<Links> find(const std::vector<ObjectId>& members) const {
    if (!some_) return {};
    const Lock lock(mutex_);
    const auto at = known_.find(workers_of(members));
    return at == known_.end() ? std::nullopt : std::optional(at->second);
  }
  /// One that comes in its place knows nothing.
  void lost(WorkerId worker) {
    const Lock lock(mutex_);
    std::erase_if(known_, [&](const auto& x) { return std::ranges::binary_search(x.first, worker); });
  }

 private:
  mutable Mutex mutex_;
  std::map<Workers, Links> known_ TROUPE_GUARDED_BY(mutex_);
  std::atomic<bool> some_ = false;
};

}  // namespace troupe::internal::collective
