#include "actors/calls/quiescence.h"

#include <algorithm>

#include "core/codec/codec.h"

namespace troupe::internal::actors {

void Quiescence::start_wave() {
  two_waves_ = !now_.empty() && missing().empty();
  before_ = std::exchange(now_, {});
}

void Quiescence::report(TrafficReport report) {
  if (workers_.contains(report.worker)) now_[report.worker] = std::move(report);
}

void Quiescence::lost(WorkerId worker) {
  if (workers_.erase(worker)) lost_.insert(worker);
  before_.erase(worker);
  now_.erase(worker);
}

std::vector<WorkerId> Quiescence::missing() const {
  std::vector<WorkerId> out;
  for (const WorkerId w : workers_)
    if (!now_.contains(w)) out.push_back(w);
  return out;
}

uint64_t Quiescence::on_the_way(WorkerId a, WorkerId b, const Reports& then) const {
  if (a == b) return 0;  // within a worker nothing is on its way: it is there
  const auto from = now_.find(a), to = then.find(b);
  if (from == now_.end() || (to != then.end() && to->second.lost.contains(a))) return 0;
  const auto sent = from->second.peers.find(b);
  if (sent == from->second.peers.end()) return 0;
  uint64_t arrived = 0;
  if (to != then.end())
    if (const auto at = to->second.peers.find(a); at != to->second.peers.end()) arrived = at->second.arrived;
  return sent->second.sent > arrived ? sent->second.sent - arrived : 0;
}

bool Quiescence::at_rest() const {
  if (!two_waves_ || !missing().empty()) return false;
  for (const auto& [worker, report] : now_) {
    if (report.busy) return false;
    const auto& known = before_.at(worker).lost;
    if (!std::includes(known.begin(), known.end(), lost_.begin(), lost_.end())) return false;
    for (const WorkerId peer : workers_)
      if (on_the_way(worker, peer, before_)) return false;
  }
  return true;
}

std::string Quiescence::under_way() const {
  const auto name = [](WorkerId w) { return "w" + std::to_string(w); };
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  for (const auto& [worker, report] : now_) {
    std::string waits;
    for (const std::string& w : report.waits) waits += (waits.empty() ? ", waits for " : ", ") + w;
    if (report.busy)
      add(name(worker) + " has " + std::to_string(report.busy) + " calls or jobs under way" + waits);
    for (const WorkerId peer : workers_)
      if (const uint64_t n = on_the_way(worker, peer, now_))
        add(std::to_string(n) + " calls from " + name(worker) + " to " + name(peer) + " have not arrived");
  }
  for (const WorkerId w : missing()) add(name(w) + " does not answer");
  for (const auto& [worker, report] : now_)
    for (const WorkerId w : lost_)
      if (!report.lost.contains(w)) add(name(worker) + " has not noticed yet that " + name(w) + " is lost");
  return text;
}

}  // namespace troupe::internal::actors
