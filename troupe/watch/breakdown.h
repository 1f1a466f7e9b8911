// The breakdown of a profile's time: for each worker, and for each method.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "actors/cluster/profiler.h"

namespace troupe {

/// A worker's parts of the time from the first event to the last one; each moment counts for the first of
/// these that is so.
struct WorkerTime {
  int64_t worker = 0;
  double compute =
      0;  ///< a method has begun and not answered, and waits for no call, or a part of a pass is at work
  double queueing = 0;  ///< a call has come, and its method has not begun
  double transfer = 0;  ///< a call or its answer is on its way, and the callee is not at work on it
  double waiting = 0;   ///< the callee is at work on it
  double idle = 0;      ///< none of these
};

/// A method on a worker.
struct MethodTime {
  int64_t worker = 0;
  std::string method;  ///< "Half::forward"
  int64_t calls = 0;   ///< that were answered
  double run = 0,
         queued = 0;  ///< medians in seconds: from its begin to its answer, from its arrival to its begin
  double slower = 1;  ///< than the median of the same on the other workers
};

/// The way of a call to another worker and back, but for the time there.
struct LinkTime {
  int64_t from = 0, to = 0;
  int64_t calls = 0;
  double time = 0;    ///< median in seconds
  double slower = 1;  ///< than the median of the other links
};

struct Breakdown {
  double seconds = 0;
  std::vector<WorkerTime> workers;
  std::vector<MethodTime> methods;
  std::vector<LinkTime> links;
  /// Takes clocks of one host: those of others have other zeros. `end`: Trace's.
  static Breakdown of(const std::vector<internal::actors::TraceEvent>& events, int64_t end = 0);
  /// Tables, and a line for each method and link that is 1.5 times slower than the same elsewhere.
  std::string str() const;
};

}  // namespace troupe
