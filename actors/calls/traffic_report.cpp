#include "actors/calls/traffic_report.h"

#include <tuple>
#include <utility>

namespace troupe::internal::actors {

Value TrafficReport::to_value() const {
  std::vector<std::tuple<WorkerId, uint64_t, uint64_t>> calls;
  for (const auto& [peer, c] : peers) calls.emplace_back(peer, c.sent, c.arrived);
  return ValueList{Value(static_cast<int64_t>(worker)), Value(busy), internal::to_value(calls),
                   internal::to_value(std::vector<WorkerId>(lost.begin(), lost.end())),
                   internal::to_value(waits)};
}

TrafficReport TrafficReport::from_value(Value v) {
  auto [worker, busy, calls, lost, waits] = internal::from_value<
      std::tuple<WorkerId, int64_t, std::vector<std::tuple<WorkerId, uint64_t, uint64_t>>,
                 std::vector<WorkerId>, std::vector<std::string>>>(std::move(v));
  TrafficReport report{worker, busy, {}, {lost.begin(), lost.end()}, std::move(waits)};
  for (const auto& [peer, sent, arrived] : calls) report.peers[peer] = {sent, arrived};
  return report;
}

}  // namespace troupe::internal::actors
