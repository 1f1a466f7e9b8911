#include "actors/calls/traffic.h"

#include <algorithm>

namespace troupe::internal::actors {
namespace {

bool counts(const net::Call& call) {
  static const uint64_t asking = net::method_id(kTraffic);
  return call.target.number != 0 || call.method != asking;
}

}  // namespace

void Traffic::sent(const net::Call& call, int64_t n) {
  if (!counts(call)) return;
  std::lock_guard lock(mutex_);
  calls_[call.target.owner].sent += static_cast<uint64_t>(n);
}

void Traffic::arrived(WorkerId from, const net::Packet& packet) {
  const auto* call = std::get_if<net::Call>(&packet);  // replies end calls that are pending until then
  if (!call || !counts(*call)) return;
  std::lock_guard lock(mutex_);
  ++calls_[from].arrived;
}

std::map<WorkerId, TrafficReport::Calls> Traffic::calls() const {
  std::lock_guard lock(mutex_);
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
