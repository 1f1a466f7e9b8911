#include "troupe/pool/supervision.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace troupe::internal {

using Kind = Supervision::Action::Kind;

Supervision::Supervision(size_t members, const RestartPolicy& policy, int at_once)
    : policy_(policy), at_once_(at_once), members_(members) {}

Supervision::Actions Supervision::begin() {
  Actions actions;
  for (size_t m = 0; m < members_.size(); ++m) actions.push_back({.kind = Kind::start, .member = m});
  return actions;
}

Supervision::Actions Supervision::add(Task task, std::optional<size_t> member, int again) {
  if (given_up_ || (member && gone(*member))) return {{.kind = Kind::fail, .task = task}};
  queued_[task] = {.member = member, .again = again};
  (member ? members_.at(*member).queued : free_).push_back(task);
  Actions actions;
  send_all(actions);
  return actions;
}

Supervision::Actions Supervision::started(size_t member, int64_t incarnation) {
  Actions actions;
  Member& m = members_.at(member);
  if (given_up_ || m.incarnation != incarnation || m.state != State::starting) return actions;
  m.state = State::ready;
  send_all(actions);
  return actions;
}

Supervision::Actions Supervision::lost(const std::vector<Seat>& seats, TimePoint now) {
  Actions actions;
  std::vector<size_t> members;
  for (const auto& [member, incarnation] : seats)
    if (!given_up_ && !gone(member) && members_.at(member).incarnation == incarnation)
      members.push_back(member);
  if (members.empty()) return actions;
  losses_.push_back(now);
  while (losses_.front() + policy_.within < now) losses_.pop_front();
  for (const size_t m : members) take_from(members_[m], actions);
  if (policy_.restart == Restart::none) {
    for (const size_t m : members) go(m, actions);
    if (std::ranges::all_of(members_, [](const Member& o) { return o.state == State::gone; }))
      give_up(actions);
  } else if (std::cmp_greater(losses_.size(), policy_.most)) {
    give_up(actions);
  } else {
    for (const size_t m : members) start(m, actions);
    for (size_t o = 0; policy_.restart == Restart::all && o < members_.size(); ++o) {
      if (std::ranges::find(members, o) != members.end()) continue;
      take_from(members_[o], actions);
      actions.push_back({.kind = Kind::end, .member = o, .incarnation = members_[o].incarnation});
      start(o, actions);
    }
  }
  send_all(actions);
  return actions;
}

std::optional<Supervision::Actions> Supervision::answered(Task task, size_t member, int64_t incarnation) {
  Member& m = members_.at(member);
  if (m.incarnation != incarnation || m.tasks.erase(task) == 0) return std::nullopt;
  const auto at = running_.find(task);
  if (!at->second.member) --m.free_tasks;
  running_.erase(at);
  Actions actions;
  send_all(actions);
  return actions;
}

Supervision::Actions Supervision::resume() {
  paused_ = false;
  Actions actions;
  send_all(actions);
  return actions;
}

bool Supervision::settled() const {
  return std::ranges::none_of(members_, [](const Member& m) { return m.state == State::starting; });
}

size_t Supervision::waiting() const { return queued_.size(); }

// What may run again waits at the head, in the order of its numbers; the rest fails.
void Supervision::take_from(Member& member, Actions& actions) {
  for (const Task task : std::views::reverse(member.tasks)) {
    Given given = running_.at(task);
    running_.erase(task);
    if (given.again-- > 0) {
      (given.member ? member.queued : free_).push_front(task);
      queued_[task] = given;
    } else {
      actions.push_back({.kind = Kind::fail, .task = task});
    }
  }
  member.tasks.clear();
  member.free_tasks = 0;
}

void Supervision::start(size_t member, Actions& actions) {
  Member& m = members_[member];
  m.state = State::starting;
  actions.push_back({.kind = Kind::start, .member = member, .incarnation = ++m.incarnation});
}

void Supervision::go(size_t member, Actions& actions) {
  Member& m = members_[member];
  m.state = State::gone;
  for (const Task task : std::exchange(m.queued, {})) {
    queued_.erase(task);
    actions.push_back({.kind = Kind::fail, .task = task});
  }
}

void Supervision::give_up(Actions& actions) {
  given_up_ = true;
  actions.push_back({.kind = Kind::give_up});
  for (const auto* tasks : {&running_, &queued_})
    for (const auto& [task, given] : *tasks) actions.push_back({.kind = Kind::fail, .task = task});
  running_.clear(), queued_.clear(), free_.clear();
  for (Member& m : members_) m.tasks.clear(), m.queued.clear();
}

std::optional<size_t> Supervision::most_free() const {
  std::optional<size_t> best;
  for (size_t m = 0; m < members_.size(); ++m)
    if (members_[m].state == State::ready && members_[m].free_tasks < at_once_ &&
        (!best || members_[m].free_tasks < members_[*best].free_tasks))
      best = m;
  return best;
}

void Supervision::send(Task task, size_t member, Actions& actions) {
  Member& m = members_[member];
  const Given given = queued_.at(task);
  queued_.erase(task);
  if (!given.member) ++m.free_tasks;
  running_[task] = given;
  m.tasks.insert(task);
  actions.push_back({.kind = Kind::send, .member = member, .incarnation = m.incarnation, .task = task});
}

void Supervision::send_all(Actions& actions) {
  if (paused_ || given_up_) return;
  for (size_t m = 0; m < members_.size(); ++m)
    while (ready(m) && !members_[m].queued.empty()) {
      const Task task = members_[m].queued.front();
      members_[m].queued.pop_front();
      send(task, m, actions);
    }
  while (!free_.empty()) {
    const auto member = most_free();
    if (!member) return;
    const Task task = free_.front();
    free_.pop_front();
    send(task, *member, actions);
  }
}

}  // namespace troupe::internal
