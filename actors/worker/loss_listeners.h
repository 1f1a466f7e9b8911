// Functions that are called when a worker is lost.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/mutex.h"
#include "core/value/value.h"

namespace troupe::internal::actors {

/// Thread-safe. Each is told once of each lost worker, after the worker's extensions were.
class LossListeners {
 public:
  using Told = std::function<void(WorkerId, const Error&)>;
  void add(Told told) { keep({std::move(told), {}}); }
  /// It is told as long as `owner` is there.
  void add(std::weak_ptr<const void> owner, Told told) { keep({std::move(told), std::move(owner)}); }
  void tell(WorkerId id, const Error& lost) const {
    std::vector<Listener> all;
    {
      const Lock lock(mutex_);
      all = all_;
    }
    for (const Listener& listener : all)
      if (!listener.gone()) listener.told(id, lost);
  }

 private:
  struct Listener {
    Told told;
    std::optional<std::weak_ptr<const void>> owner;
    bool gone() const { return owner && owner->expired(); }
  };
  void keep(Listener listener) {
    const Lock lock(mutex_);
    std::erase_if(all_, [](const Listener& l) { return l.gone(); });
    all_.push_back(std::move(listener));
  }
  mutable Mutex mutex_;
  std::vector<Listener> all_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::internal::actors
