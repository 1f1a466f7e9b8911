// The pools of a cluster while a job looks at its actors.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "troupe/pool/pool_core.h"

namespace troupe::internal {

/// An actor of a job is elsewhere.
struct MovedActor {
  std::string path;
  std::string worker;  ///< empty: it is gone
};

/// Nothing goes to their members while it is there.
class PausedPools {
 public:
  /// Waits until `until` for members that are being made.
  PausedPools(const Cluster& cluster, TimePoint until) : pools_(of(cluster)) {
    for (PoolCore* p : pools_) p->pause(until);
  }
  PausedPools(const PausedPools&) = delete;
  ~PausedPools() {
    for (PoolCore* p : pools_) p->resume();
  }
  /// The workers of their actors; empty: lost.
  std::vector<MovedActor> where() const {
    std::vector<MovedActor> all;
    for (const PoolCore* p : pools_)
      for (const auto& [path, worker] : p->where()) all.push_back({path, worker});
    return all;
  }
  bool none() const { return pools_.empty(); }
  static std::vector<PoolCore*> of(const Cluster& cluster) {
    auto all = PoolCore::all_listed();
    std::erase_if(all, [&](const PoolCore* p) { return !p->is_of(cluster); });
    return all;
  }

 private:
  const std::vector<PoolCore*> pools_;
};

}  // namespace troupe::internal
