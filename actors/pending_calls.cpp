#include "actors/pending_calls.h"

namespace troupe::actors {

uint64_t PendingCalls::add(PendingCall call, bool& sooner) {
  std::lock_guard lock(mutex_);
  sooner = call.deadline < next_sweep_;
  if (sooner) next_sweep_ = call.deadline;
  calls_.emplace(++last_, std::move(call));
  return last_;
}

std::optional<PendingCall> PendingCalls::take(uint64_t id, WorkerId to) {
  std::lock_guard lock(mutex_);
  auto at = calls_.find(id);
  if (at == calls_.end() || at->second.caller.to != to) return std::nullopt;
  return std::move(calls_.extract(at).mapped());
}

std::vector<PendingCall> PendingCalls::take_all(WorkerId to) {
  std::lock_guard lock(mutex_);
  std::vector<PendingCall> out;
  for (auto at = calls_.begin(); at != calls_.end();) {
    if (to != kNoWorker && at->second.caller.to != to) {
      ++at;
      continue;
    }
    out.push_back(std::move(at->second));
    at = calls_.erase(at);
  }
  return out;
}

std::vector<PendingCall> PendingCalls::expire(TimePoint now, TimePoint& next) {
  std::lock_guard lock(mutex_);
  std::vector<PendingCall> out;
  if (now >= next_sweep_) {
    next_sweep_ = TimePoint::max();
    for (auto at = calls_.begin(); at != calls_.end();) {
      if (at->second.deadline <= now) {
        out.push_back(std::move(at->second));
        at = calls_.erase(at);
      } else {
        next_sweep_ = std::min(next_sweep_, at->second.deadline);
        ++at;
      }
    }
  }
  next = next_sweep_;
  return out;
}

size_t PendingCalls::size() const {
  std::lock_guard lock(mutex_);
  return calls_.size();
}

}  // namespace troupe::actors
