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

bool PendingCalls::sent(uint64_t id) {
  std::lock_guard lock(mutex_);
  if (auto at = calls_.find(id); at != calls_.end()) at->second.sent = true;
  return leaving_.empty() || leaving_.erase(id) == 0;
}

void PendingCalls::not_sent(uint64_t id) {
  std::lock_guard lock(mutex_);
  calls_.erase(id);
  leaving_.erase(id);
}

GivenUp PendingCalls::remove(Calls::iterator at) {
  GivenUp out{at->first, std::move(at->second)};
  calls_.erase(at);
  if (!out.call.local && out.call.to_actor) {
    out.tell = out.call.sent;
    if (!out.call.sent) leaving_.insert(out.id);
  }
  return out;
}

std::optional<GivenUp> PendingCalls::give_up(uint64_t id) {
  std::lock_guard lock(mutex_);
  auto at = calls_.find(id);
  if (at == calls_.end()) return std::nullopt;
  return remove(at);
}

std::vector<GivenUp> PendingCalls::expire(TimePoint now, TimePoint& next) {
  std::lock_guard lock(mutex_);
  std::vector<GivenUp> out;
  if (now >= next_sweep_) {
    next_sweep_ = TimePoint::max();
    for (auto at = calls_.begin(); at != calls_.end();) {
      const auto call = at++;
      if (call->second.deadline <= now)
        out.push_back(remove(call));
      else
        next_sweep_ = std::min(next_sweep_, call->second.deadline);
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
