#include "parallel/pipeline/runner_report.h"

#include <algorithm>
#include <limits>

namespace troupe::parallel {

int64_t waited_for(const std::vector<Came>& came, int64_t since) {
  if (came.empty()) return 0;
  int64_t sent = came[0].sent, arrived = came[0].arrived;
  for (const Came& c : came) sent = std::min(sent, c.sent), arrived = std::min(arrived, c.arrived);
  return std::max<int64_t>(0, arrived - std::max(since, sent));
}

StepReport join(const std::vector<RunnerReport>& parts, const Policy& policy) {
  StepReport report;
  report.schedule = name_of(policy);
  report.workers = static_cast<int>(parts.size());
  report.micro_batches = micro_batches_of(policy);
  report.map = map_of(policy);
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const RunnerReport& part : parts)
    for (const Done& d : part.done) first = std::min(first, d.begin);
  const auto seconds = [&](int64_t t) { return static_cast<double>(t - first) * 1e-9; };
  for (size_t w = 0; w < parts.size(); ++w) {
    double busy = 0;
    for (const Done& d : parts[w].done) {
      const Action action{static_cast<Work>(d.work), static_cast<int>(d.micro_batch),
                          report.map.chunk(d.stage)};
      report.events.push_back(
          {static_cast<int>(w), static_cast<int>(d.stage), action, seconds(d.begin), seconds(d.end)});
      report.duration = std::max(report.duration, seconds(d.end));
      busy += static_cast<double>(d.end - d.begin) * 1e-9;
    }
    for (const Came& c : parts[w].came) {
      report.messages.push_back({static_cast<int>(c.from), static_cast<int>(c.to.stage),
                                 static_cast<int>(c.micro_batch), seconds(c.sent), seconds(c.arrived),
                                 c.bytes});
    }
    report.busy.push_back(busy);
    report.exposed.push_back(static_cast<double>(parts[w].exposed) * 1e-9);
    report.peak_live.push_back(static_cast<int>(parts[w].peak_live));
  }
  return report;
}

}  // namespace troupe::parallel
