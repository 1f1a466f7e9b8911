#include "troupe/watch/report_text.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "actors/worker/reports.h"

namespace troupe::internal::watch {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMostActors = 200;  // the longest queues first

ordered_json number_or_null(double x) { return std::isfinite(x) ? ordered_json(x) : ordered_json(nullptr); }

ordered_json json_of(const actors::WorkerReport& r, const std::string& host) {
  ordered_json actors = ordered_json::array(), methods = ordered_json::array();
  int64_t calls = 0, queued = 0;
  double busy = 0, waited = 0;
  for (const auto& a : r.actors) {
    actors.push_back({{"actor", a.label},
                      {"type", a.type},
                      {"doing", a.doing},
                      {"seconds", a.seconds},
                      {"queued", a.queued},
                      {"calls", a.calls},
                      {"busy", a.busy}});
  }
  for (const auto& m : r.methods) {
    methods.push_back({{"method", m.name}, {"calls", m.calls}, {"busy", m.busy}, {"queued", m.queued}});
    calls += m.calls, busy += m.busy, waited += m.queued;
  }
  if (const auto at = r.metrics.find("queued_calls"); at != r.metrics.end()) queued = at->second;
  return {{"worker", r.worker},
          {"pid", r.process.pid},
          {"program", r.process.program},
          {"clock", r.clock},
          {"steps", r.progress.steps},
          {"steps_per_second", r.progress.per_second},
          {"step_seconds", r.progress.median},
          {"step_age", r.progress.age},
          {"loss", number_or_null(r.progress.loss)},
          {"cpu", r.process.cpu},
          {"starved", r.process.starved},
          {"memory", r.process.memory},
          {"threads", r.process.threads},
          {"calls", calls},
          {"busy", busy},
          {"waited_in_queues", waited},
          {"queued", queued},
          {"actors", actors},
          {"more_actors", r.more_actors},
          {"methods", methods},
          {"metrics", r.metrics},
          {"host", host}};
}

}  // namespace

void install_report_text(actors::Worker& worker) {
  kReportText.serve(worker, [&worker] {
    return json_of(actors::report_of(worker, kMostActors), worker.host())
        .dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  });
}

}  // namespace troupe::internal::watch
