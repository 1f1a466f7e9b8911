#include "actors/calls/traffic.h"

#include <algorithm>

namespace troupe::internal::actors {

void Traffic::sent(WorkerId to, int64_t n) {
  Lock lock(mutex_);
  calls_[to].sent += static_cast<uint64_t>(n);
}

void Traffic::arrived(WorkerId from) {
  Lock lock(mutex_);
  ++calls_[from].arrived;
}

std::map<WorkerId, CallCounts> Traffic::calls() const {
  Lock lock(mutex_);
  return calls_;
}

// What goes from a call that waits to a message being handled and back may be missed by either look, but then
// a call has been sent meanwhile.
TrafficReport Traffic::report(int64_t own, const std::function<int64_t()>& others) const {
  TrafficReport report;
  report.peers = calls();
  const int64_t before = busy_ - own;
  report.busy = others();
  report.busy += std::max<int64_t>(before, busy_ - own);
  if (calls() != report.peers) ++report.busy;
  return report;
}

}  // namespace troupe::internal::actors
