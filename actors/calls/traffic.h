// What one worker has under way: for a shutdown that waits until nothing is.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "actors/calls/quiescence.h"
#include "net/wire/wire.h"

namespace troupe::internal::actors {

/// Services: a worker's TrafficReport (such calls are not counted), given the workers that the asker has
/// lost: they are lost to this one as well; what is alive on it, and what failed unheard, as texts.
inline constexpr const char* kTraffic = "cluster.traffic";
inline constexpr const char* kAlive = "cluster.alive";
inline constexpr const char* kUnheard = "cluster.unheard";

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

  void sent(const net::Call& call, int64_t n);
  void arrived(WorkerId from, const net::Packet& packet);

  /// busy and peers of the report. `others`: what else is under way, besides messages and jobs; called in
  /// between. `own`: how many Busy the caller holds.
  TrafficReport report(int64_t own, const std::function<int64_t()>& others) const;

 private:
  std::map<WorkerId, TrafficReport::Calls> calls() const;
  std::atomic<int64_t> busy_{0};
  mutable std::mutex mutex_;
  std::map<WorkerId, TrafficReport::Calls> calls_;
};

}  // namespace troupe::internal::actors
