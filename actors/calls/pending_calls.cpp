#include "actors/calls/pending_calls.h"

#include <algorithm>
#include <tuple>

namespace troupe::internal::actors {
namespace {

// Its deadline, or before that the time to ask what its callee is doing.
TimePoint next_event(const PendingCall& call) {
  const CallLimit& limit = call.limit;
  const bool ask = call.to_actor && !call.no_result && !call.asked && limit.end != TimePoint::max();
  return ask ? limit.end - lead_of(limit) : limit.end;
}

}  // namespace

// Here, so that not every program compiles them.
PendingCalls::PendingCalls(FlowLimits limits) : flow_(limits) {}
PendingCalls::~PendingCalls() = default;

PendingCalls::Added PendingCalls::add(uint64_t id, PendingCall&& call, net::Call* message,
                                      const ObjectId& actor, size_t bytes, OnFull on_full, const Held* held) {
  Added out;
  Lock lock(mutex_);
  if (call.to_actor) {
    call.ticket = flow_.enter(actor, bytes);
    if (call.ticket) {
      out.notify_start = flow_.scarce(call.ticket);
    } else if (on_full == OnFull::fail) {
      out.verdict = Added::refused;
      out.taken = flow_.to(actor.owner);
      return out;
    } else {
      out.verdict = Added::waits;
      flow_.wait(id, actor, bytes);
      out.drain = flow_.begin_drain(actor.owner);  // those before it may have been given up
      if (!call.local) call.unsent = std::make_unique<net::Call>(std::move(*message));
      if (held) call.held = held->shared_from_this();
      call.left.emplace();
      out.left = call.left->future();
    }
  }
  const TimePoint event = next_event(call);
  out.sooner = event < next_sweep_;
  if (out.sooner) next_sweep_ = event;
  calls_.emplace(id, std::move(call));
  return out;
}

std::optional<PendingCalls::Next> PendingCalls::next(WorkerId to) {
  Lock lock(mutex_);
  const auto* calls = &calls_;  // clang does not see that the lambda runs while the mutex is held
  auto chosen = flow_.next(to, [&](uint64_t id) { return calls->contains(id); });
  if (!chosen) return std::nullopt;
  PendingCall& call = calls_.at(chosen->message);
  call.ticket = chosen->ticket;
  Next next{chosen->message,           call.local, std::move(call.unsent),
            flow_.scarce(call.ticket), *call.left, call.straight ? call.straight->late : nullptr};
  call.left.reset();
  return next;
}

bool PendingCalls::wait(WorkerId to) const {
  Lock lock(mutex_);
  return flow_.line(to);
}

bool PendingCalls::sent(uint64_t id) {
  Lock lock(mutex_);
  if (auto at = calls_.find(id); at != calls_.end()) at->second.sent = true;
  return leaving_.empty() || leaving_.erase(id) == 0;
}

std::optional<WorkerId> PendingCalls::could_hand_over(uint64_t id) const {
  Lock lock(mutex_);
  const auto at = calls_.find(id);
  if (at == calls_.end()) return {};
  const PendingCall& call = at->second;
  if (!call.to_actor || call.local || call.no_result || call.uncancellable) return {};
  if (call.straight && call.straight->handed_over) return {};  // its result has a place to go
  return call.caller.to;
}

bool PendingCalls::hand_over(uint64_t id, std::function<void()> done) {
  Lock lock(mutex_);
  const auto at = calls_.find(id);
  if (at == calls_.end()) return false;
  auto& straight = at->second.straight;
  if (!straight) straight = std::make_unique<PendingCall::Straight>();
  straight->handed_over = std::move(done);
  return true;
}

bool PendingCalls::begin(uint64_t id, const CallLimit& limit) {
  Lock lock(mutex_);
  const auto at = calls_.find(id);
  if (at == calls_.end()) return false;
  at->second.limit = limit;
  const TimePoint event = next_event(at->second);
  if (event >= next_sweep_) return false;
  next_sweep_ = event;
  return true;
}

void PendingCalls::leave(FlowControl::Ticket& ticket, WorkerId to, bool& drain) {
  if (!ticket) return;
  flow_.leave(ticket);
  drain = flow_.begin_drain(to);
}

std::optional<PendingCall> PendingCalls::not_sent(uint64_t id, bool& drain) {
  Lock lock(mutex_);
  leaving_.erase(id);
  if (auto ghost = ghosts_.extract(id); !ghost.empty())
    leave(ghost.mapped().ticket, ghost.mapped().to, drain);
  auto call = calls_.extract(id);
  if (call.empty()) return std::nullopt;
  leave(call.mapped().ticket, call.mapped().caller.to, drain);
  return std::move(call.mapped());
}

void PendingCalls::started(uint64_t id, WorkerId to, bool& drain) {
  Lock lock(mutex_);
  if (auto at = calls_.find(id); at != calls_.end() && at->second.caller.to == to) {
    leave(at->second.ticket, to, drain);
  } else if (auto ghost = ghosts_.find(id); ghost != ghosts_.end() && ghost->second.to == to) {
    leave(ghost->second.ticket, to, drain);
    ghosts_.erase(ghost);
  }
}

std::optional<PendingCall> PendingCalls::take(uint64_t id, WorkerId to, bool& drain) {
  Lock lock(mutex_);
  auto at = calls_.find(id);
  if (at == calls_.end()) {
    auto ghost = ghosts_.find(id);
    if (ghost == ghosts_.end() || ghost->second.to != to) return std::nullopt;
    leave(ghost->second.ticket, to, drain);
    ghosts_.erase(ghost);
    return std::nullopt;
  }
  if (at->second.caller.to != to) return std::nullopt;
  leave(at->second.ticket, to, drain);
  return std::move(calls_.extract(at).mapped());
}

std::vector<PendingCall> PendingCalls::take_all(WorkerId to) {
  Lock lock(mutex_);
  std::vector<PendingCall> out;
  for (auto at = calls_.begin(); at != calls_.end();) {
    if (to != kNoWorker && at->second.caller.to != to) {
      ++at;
      continue;
    }
    flow_.leave(at->second.ticket);
    out.push_back(std::move(at->second));
    at = calls_.erase(at);
  }
  for (auto at = ghosts_.begin(); at != ghosts_.end();) {
    const auto ghost = at++;
    if (to != kNoWorker && ghost->second.to != to) continue;
    flow_.leave(ghost->second.ticket);
    ghosts_.erase(ghost);
  }
  return out;
}

// Its message, if it has left or is leaving, takes room until the callee says that it does not.
GivenUp PendingCalls::remove(Calls::iterator at) {
  GivenUp out{at->first, std::move(at->second)};
  calls_.erase(at);
  PendingCall& call = out.call;
  if (call.ticket) ghosts_.emplace(out.id, Ghost{call.caller.to, std::exchange(call.ticket, {})});
  if (!call.local && call.to_actor && !call.left) {
    out.tell = call.sent;
    if (!call.sent) leaving_.insert(out.id);
  }
  return out;
}

std::optional<GivenUp> PendingCalls::give_up(uint64_t id) {
  Lock lock(mutex_);
  auto at = calls_.find(id);
  if (at == calls_.end()) return std::nullopt;
  return remove(at);
}

PendingCalls::Expired PendingCalls::expire(TimePoint now) {
  Lock lock(mutex_);
  Expired out;
  if (now >= next_sweep_) {
    next_sweep_ = TimePoint::max();
    for (auto at = calls_.begin(); at != calls_.end();) {
      const auto entry = at++;
      PendingCall& call = entry->second;
      if (call.limit.end <= now && !call.uncancellable) {
        out.calls.push_back(remove(entry));
        continue;
      }
      if (call.limit.end <= now) {  // it goes on, and who waited is told
        out.calls.push_back({entry->first,
                             {.caller = call.caller,
                              .promise = call.promise,
                              .limit = std::exchange(call.limit, {}),
                              .status = call.status,
                              .left = call.left}});
        continue;
      }
      if (next_event(call) <= now) {
        call.asked = true;
        if (call.sent || call.local) out.to_ask.push_back({entry->first, call.caller.to, call.local});
      }
      next_sweep_ = std::min(next_sweep_, next_event(call));
    }
  }
  out.next = next_sweep_;
  return out;
}

void PendingCalls::note_status(uint64_t id, std::string status) {
  Lock lock(mutex_);
  if (auto at = calls_.find(id); at != calls_.end()) at->second.status = std::move(status);
}

PendingCalls::Made PendingCalls::made(uint64_t id, const PendingCall& call) {
  return {.label = call.caller.label,
          .to = call.caller.to,
          .id = id,
          .status = call.status,
          .when = call.limit.made,
          .end = call.limit.end,
          .sent = call.sent,
          .to_actor = call.to_actor,
          .waits_for_room = call.left.has_value(),
          .target = call.unsent ? call.unsent->target : ObjectId{},
          .local = call.local,
          .by = call.by,
          .by_actor = call.caller.cell};
}

std::vector<PendingCalls::Made> PendingCalls::all() const {
  Lock lock(mutex_);
  std::vector<Made> out;
  for (const auto& [id, call] : calls_) out.push_back(made(id, call));
  std::sort(out.begin(), out.end(),
            [](const Made& a, const Made& b) { return std::tie(a.when, a.id) < std::tie(b.when, b.id); });
  return out;
}

std::vector<PendingCalls::Made> PendingCalls::made_by(const void* invocation) const {
  Lock lock(mutex_);
  std::vector<Made> out;
  for (const auto& [id, call] : calls_)
    if (call.by == invocation) out.push_back(made(id, call));
  std::sort(out.begin(), out.end(), [](const Made& a, const Made& b) {
    return std::tie(a.label, a.to, a.id) < std::tie(b.label, b.to, b.id);
  });
  return out;
}

std::vector<std::string> PendingCalls::labels() const {
  Lock lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [id, call] : calls_) out.push_back(call.caller.label);
  return out;
}

size_t PendingCalls::size() const {
  Lock lock(mutex_);
  return calls_.size();
}

FlowControl::Sums PendingCalls::in_flight() const {
  Lock lock(mutex_);
  return flow_.all();
}

}  // namespace troupe::internal::actors
