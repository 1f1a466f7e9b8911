// What one worker has under way: for a shutdown that waits until nothing is.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <utility>

#include "actors/calls/traffic_report.h"
#include "core/base/mutex.h"
#include "core/value/value.h"

namespace troupe::internal::actors {

/// Counts calls to and from other workers, and what is being handled here. Thread-safe.
class Traffic {
 public:
  /// While one is alive, the worker is busy. What goes on later takes its own before this one goes.
  class Busy {
   public:
    explicit Busy(Traffic& traffic) : traffic_(&traffic) { ++traffic.busy_; }
    Busy(Busy&& o) noexcept : traffic_(std::exchange(o.traffic_, nullptr)) {}
    Busy& operator=(Busy&&) = delete;
    ~Busy() {
      if (traffic_) --traffic_->busy_;
    }

   private:
    Traffic* traffic_;
  };

  void sent(WorkerId to, int64_t n);
  void arrived(WorkerId from);

  /// busy and peers of the report. `others`: what else is under way, besides messages and jobs; called in
  /// between. `own`: how many Busy the caller holds.
  TrafficReport report(int64_t own, const std::function<int64_t()>& others) const;

 private:
  std::map<WorkerId, CallCounts> calls() const;
  std::atomic<int64_t> busy_{0};
  mutable Mutex mutex_;
  std::map<WorkerId, CallCounts> calls_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::internal::actors
