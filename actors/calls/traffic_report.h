// What a worker says of what it has under way.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/codec/codec.h"

namespace troupe::internal::actors {

/// Calls between this worker and another one.
struct CallCounts {
  uint64_t sent = 0, arrived = 0;
  bool operator==(const CallCounts&) const = default;
};

/// One worker's answer.
struct TrafficReport {
  WorkerId worker = kNoWorker;
  int64_t busy = 0;                      ///< messages and jobs being handled, calls that wait, passes
  std::map<WorkerId, CallCounts> peers;  ///< calls to and from each
  std::set<WorkerId> lost;               ///< workers that it has lost
  std::vector<std::string> waits;        ///< some of the calls that it waits for: "Layer::forward"

  Value to_value() const;
  static TrafficReport from_value(Value v);
};

}  // namespace troupe::internal::actors

namespace troupe {
template <>
struct Codec<internal::actors::TrafficReport> {
  using T = internal::actors::TrafficReport;
  static std::string name() { return "report of what is under way"; }
  static Value to(const T& report) { return report.to_value(); }
  static T from(Value v) { return T::from_value(std::move(v)); }
};
}  // namespace troupe
