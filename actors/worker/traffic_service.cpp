#include "actors/worker/traffic_service.h"

#include <algorithm>

#include "actors/calls/traffic.h"
#include "actors/worker/guests.h"

namespace troupe::internal::actors {

void install_traffic(Worker& worker) {
  struct Hook final : Interceptor {
    explicit Hook(Worker& w) : self(w.id()), traffic(w.traffic()) {}
    void outgoing_call(const CallerState&, net::Call& call) override { count(call, 1); }
    void call_not_sent(net::Call& call) override { count(call, -1); }
    void arrived(WorkerId from, net::Packet& packet) override {
      const auto* call = std::get_if<net::Call>(&packet);  // replies end calls that are pending until then
      if (call && !asks(*call)) traffic.arrived(from);
    }
    // A call within the worker is never on its way: it is being handled from the start.
    void count(const net::Call& call, int64_t n) {
      if (call.target.owner != self && !asks(call)) traffic.sent(call.target.owner, n);
    }
    static bool asks(const net::Call& call) {
      return call.target.number == 0 && call.method == kTraffic.method;
    }
    const WorkerId self;
    Traffic& traffic;
  };
  worker.add_extension(std::make_unique<Hook>(worker));
  kTraffic.serve(worker, [&worker](Invocation& call, const std::vector<WorkerId>& gone) {
    for (const WorkerId lost : gone)
      if (lost != worker.id())
        worker.lose(lost, Error(ErrorKind::disconnected, "so says " + worker.members().name_of(call.from())));
    // This question keeps the worker busy: as an invocation, and on its way in.
    const int64_t own = call.from() == worker.id() ? 1 : 2;
    std::vector<std::string> waits;
    TrafficReport report = worker.traffic().report(own, [&] {
      waits = worker.pending_calls().labels();
      std::erase_if(waits, [](const std::string& label) { return label.starts_with(kTraffic.name); });
      return static_cast<int64_t>(waits.size()) + worker.metrics()["backward_passes"];
    });
    report.worker = worker.id();
    report.lost.insert(gone.begin(), gone.end());  // those that it never knew as well
    for (const WorkerId lost : worker.members().lost()) report.lost.insert(lost);
    waits.resize(std::min<size_t>(waits.size(), 3));
    report.waits = std::move(waits);
    return report;
  });
  kUnheard.serve(worker, [&worker] {
    worker.extension<Guests>()->dismiss("the cluster ends");
    return worker.unheard().take();
  });
  kAlive.serve(worker, [&worker] {
    std::vector<std::string> alive = worker.actors().labels();
    const auto metrics = worker.metrics();
    for (const char* kind : {"contexts", "owned_values", "pending_references"})
      if (const auto at = metrics.find(kind); at != metrics.end() && at->second)
        alive.push_back(std::to_string(at->second) + " " + kind + " on " + worker.name());
    return alive;
  });
}

}  // namespace troupe::internal::actors
