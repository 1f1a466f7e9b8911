#include "actors/calls/incoming_calls.h"

namespace troupe::internal::actors {

bool IncomingCalls::add(WorkerId from, uint64_t id, Ref<Cancellable> call) {
  Lock lock(mutex_);
  return calls_.emplace(std::pair(from, id), std::move(call)).second;
}

void IncomingCalls::remove(WorkerId from, uint64_t id, const Cancellable& call) {
  Ref<Cancellable> gone;  // let go after the lock
  Lock lock(mutex_);
  auto at = calls_.find({from, id});
  if (at == calls_.end() || at->second.get() != &call) return;
  gone = std::move(at->second);
  calls_.erase(at);
}

Ref<Cancellable> IncomingCalls::find(WorkerId from, uint64_t id) const {
  Lock lock(mutex_);
  auto at = calls_.find({from, id});
  return at == calls_.end() ? nullptr : at->second;
}

std::vector<Ref<Cancellable>> IncomingCalls::of(WorkerId from) const {
  Lock lock(mutex_);
  std::vector<Ref<Cancellable>> out;
  for (auto at = calls_.lower_bound({from, 0}); at != calls_.end() && at->first.first == from; ++at)
    out.push_back(at->second);
  return out;
}

std::vector<Ref<Cancellable>> IncomingCalls::all() const {
  Lock lock(mutex_);
  std::vector<Ref<Cancellable>> out;
  for (const auto& [key, call] : calls_) out.push_back(call);
  return out;
}

void IncomingCalls::clear() {
  decltype(calls_) gone;  // let go after the lock
  Lock lock(mutex_);
  gone.swap(calls_);
}

size_t IncomingCalls::size() const {
  Lock lock(mutex_);
  return calls_.size();
}

}  // namespace troupe::internal::actors
