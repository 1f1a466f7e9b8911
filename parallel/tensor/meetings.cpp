#include "parallel/tensor/meetings.h"

#include <algorithm>

#include "actors/cell/actor_cell.h"
#include "autograd/distributed/dist_engine.h"
#include "collective/engine.h"
#include "parallel/tensor/check_ranks.h"

namespace troupe::tp {

using internal::Lock;
using internal::actors::Invocation;
using internal::collective::GroupEngine;

Meetings::~Meetings() {
  for (const auto& of : groups_)
    for (const auto& [block, group] : of->named) GroupEngine::of(worker_).forget(group);
}

void Meetings::stop() {
  std::vector<std::unique_ptr<OfGroup>> gone;  // let go after the lock
  const Lock lock(mutex_);
  gone.swap(groups_);
}

Meeting Meetings::next(const Group& group, const char* what, std::string_view layer) {
  const Invocation* const call = frame().call ? &frame().call->outermost() : nullptr;
  if (frame().actor && !(call && call->cell()))
    throw_invalid(
        std::string("[") + what +
        "] it belongs to no call, and ranks know no order of hooks, callbacks and backward(): use it "
        "in a method; its gradient comes by itself");
  std::vector<Group> gone;
  Meeting meeting;
  {
    const Lock lock(mutex_);
    OfGroup& of = this->of(group);
    Call alone;
    if (!call) alone.number = of.calls++;
    Call& mine = call ? call_of(of, key_of(*call)) : alone;
    meeting = {named(of, mine.number, gone),
               "call " + std::to_string(mine.number) + ", " + what + " " +
                   std::to_string(mine.conversions++) + (layer.empty() ? "" : " of " + std::string(layer)),
               mine.number};
    if (checks_ranks()) {
      if (!mine.checks) mine.checks = std::make_shared<std::vector<Future<void>>>();
      meeting.checks = mine.checks;
    }
  }
  for (const Group& g : gone) GroupEngine::of(worker_).forget(g);
  if (const auto* const own = worker_.extension<MeetingsOfWorker>()) meeting.sends = own->sends();
  return meeting;
}

Meetings::OfGroup& Meetings::of(const Group& group) {
  auto at = std::ranges::find_if(groups_, [&](const auto& known) { return known->group == group; });
  if (at == groups_.end()) at = groups_.insert(at, std::make_unique<OfGroup>(OfGroup{group, {}}));
  return **at;
}

Meeting Meetings::at(const Group& group, const std::string& tag) {
  std::vector<Group> gone;
  const Lock lock(mutex_);
  return {named(of(group), 0, gone), tag};
}

Meetings::CallKey Meetings::key_of(const Invocation& call) {
  return {call.from(), call.call().id, call.call().store_as, call.began()};
}

void Meetings::number_call(uint64_t number) {
  const CallKey key = key_of(frame().call->outermost());
  const Lock lock(mutex_);
  numbered_[key] = number;
}

Meetings::Call& Meetings::call_of(OfGroup& of, const CallKey& key) {
  if (const auto at = of.open.find(key); at != of.open.end()) return at->second;
  if (const auto at = numbered_.find(key); at != numbered_.end()) {
    Call& made = of.open[key];
    made.number = at->second;
    return made;
  }
  const bool same_caller = key.from == of.newest.from;
  if (key.began < of.newest.began || (key.began == of.newest.began && same_caller && key.id < of.newest.id))
    throw_invalid(
        "[" + *frame().what + "] it comes to its first conversion over group \"" + of.group.name() +
        "\" after a call that began later, so that ranks may differ in which of their calls belong together: "
        "let what it waits for before come as an argument, or wait for each call before the next");
  of.newest = key;
  Call& made = of.open[key];
  made.number = of.calls++;
  return made;
}

const Group& Meetings::named(OfGroup& of, uint64_t number, std::vector<Group>& gone) {
  const uint64_t block = in_blocks_ ? number / kBlock : 0;
  if (of.named.empty() || of.named.back().first < block) {
    std::vector<size_t> ranks(of.group.size());
    for (size_t r = 0; r < ranks.size(); ++r) ranks[r] = r;
    const std::string where = in_blocks_ ? ", calls " + std::to_string(block * kBlock) + " on" : where_;
    of.named.emplace_back(block, of.group.subset(ranks, of.group.name() + where));
    while (of.named.size() > 2) {
      gone.push_back(std::move(of.named.front().second));
      of.named.pop_front();
    }
    const uint64_t first = of.named.front().first * kBlock;
    std::erase_if(of.open, [first](const auto& x) { return x.second.number < first; });
  }
  const auto at = std::ranges::find(of.named, block, &std::pair<uint64_t, Group>::first);
  if (at != of.named.end()) return at->second;
  throw_error(ErrorKind::overloaded,
              "[" + *frame().what + "] more than " + std::to_string(kBlock) +
                  " calls that began later use group \"" + of.group.name() +
                  "\" without a context: wait for some of them before you call others");
}

void MeetingsOfWorker::install(internal::actors::Worker& worker) {
  worker.add_extension(std::make_unique<MeetingsOfWorker>(worker));
}

std::shared_ptr<Meetings> MeetingsOfWorker::here(const char* what) {
  if (!frame().worker)
    throw_invalid("[" + std::string(what) +
                  "] no worker runs on this thread: call it in a method of an actor");
  internal::actors::Worker& worker = *frame().worker;
  const uint64_t context = frame().context;
  if (!context) {
    auto* const own = worker.extension<MeetingsOfWorker>();
    if (!own) throw_invalid("[" + std::string(what) + "] worker " + worker.name() + " was set up without it");
    return {std::shared_ptr<void>(), &own->without_context_};
  }
  autograd::DistEngine& engine = *worker.extension<autograd::DistEngine>();
  const auto* const call = frame().call.get();
  const auto state = engine.contexts().join(context, call ? call->from() : kNoWorker);
  return state->keep<Meetings>(
      [&] { return std::make_shared<Meetings>(worker, " in context " + std::to_string(context), false); });
}

}  // namespace troupe::tp
