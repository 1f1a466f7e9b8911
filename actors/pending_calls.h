// Calls that wait for their reply. Pure: the time is an argument, what has ended is returned.
#pragma once
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "actors/interceptor.h"
#include "core/future.h"

namespace troupe::actors {

struct PendingCall {
  CallerState caller;
  Promise<Value> promise;
  TimePoint deadline;
};

/// Thread-safe.
class PendingCalls {
 public:
  /// Number of the new call. `sooner` is set if its deadline is before that of every sweep planned so far.
  uint64_t add(PendingCall call, bool& sooner);
  /// The call `id` to worker `to`, which then waits no more; empty if it ended before, or went to another
  /// worker.
  std::optional<PendingCall> take(uint64_t id, WorkerId to);
  /// All calls to one worker, or with kNoWorker all calls.
  std::vector<PendingCall> take_all(WorkerId to);
  /// Those whose deadline has passed. `next` becomes the time of the next sweep.
  std::vector<PendingCall> expire(TimePoint now, TimePoint& next);
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, PendingCall> calls_;
  uint64_t last_ = 0;
  TimePoint next_sweep_ = TimePoint::max();
};

}  // namespace troupe::actors
