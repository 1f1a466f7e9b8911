#include "parallel/tensor/meetings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/cell/actor_cell.h"
#include "autograd/distributed/dist_engine.h"
#include "collective/engine.h"
#include "collective/schedule/choice.h"
#include "parallel/tensor/check_ranks.h"
#include "rref/joint_call.h"
#include "rref/ref_messages.h"
#include "rref/same_member.h"

namespace troupe::tp {

using internal::Lock;
using internal::actors::Invocation;
using internal::collective::GroupEngine;
using internal::rref::is_same_member;
using internal::rref::JointNumber;
using internal::rref::kJointFailed;
using internal::rref::kJointWithout;

namespace {

// Begins tags of what belongs to no call. (What all calls of a context wait for fails with one of them.)
const std::string kOfAllCalls = "all calls, ";

JointId joint_id(WorkerId from, uint64_t number, uint64_t method) {
  return {from, number, JointNumber::of(number).all ? 0 : method};
}

}  // namespace

void Meeting::count_sum(int64_t bytes) const {
  namespace collective = internal::collective;
  constexpr auto kSum = collective::Collective::all_reduce;
  const collective::HostCounts on =
      collective::host_counts(collective::counted(collective::hosts_of(group)), group.size());
  const auto way = collective::choose({kSum, group.size(), static_cast<size_t>(bytes), on}).way;
  count(static_cast<int64_t>(
      collective::cost(kSum, way, group.size(), static_cast<double>(bytes), on).elements));
}

Meetings::~Meetings() {
  for (const auto& of : groups_)
    for (const auto& [number, series] : of->series)
      for (const auto& [block, group] : series.named) GroupEngine::of(worker_).forget(group);
}

void Meetings::stop() {
  std::vector<std::unique_ptr<OfGroup>> gone;  // let go after the lock
  const Lock lock(mutex_);
  gone.swap(groups_);
}

Meeting Meetings::next(const Group& group, const char* what, std::string_view layer, bool of_layer) {
  const Invocation* const call = frame().call ? &frame().call->outermost() : nullptr;
  if (frame().actor && !(call && call->cell()))
    throw_invalid(
        std::string("[") + what +
        "] it belongs to no call, and ranks know no order of hooks, callbacks and backward(): use it "
        "in a method; its gradient comes by itself");
  std::vector<Group> gone;
  Meeting meeting;
  std::optional<JointId> joint;
  {
    const Lock lock(mutex_);
    Call alone, *mine = nullptr;
    OfGroup& of = this->of(group);
    if (call) {
      mine = &call_of(of, *call);
    } else {
      alone = {.number = of.calls++};
      mine = &alone;
    }
    const uint64_t count = of_layer ? mine->of_layers[std::string(layer)]++ : mine->conversions++;
    meeting = {named(of, *mine, gone),
               mine->text() + ", " + what + " " + std::to_string(count) +
                   (layer.empty() ? "" : " of " + std::string(layer)),
               mine->number};
    joint = mine->joint;
    std::erase_if(gone, [&](const Group& g) TROUPE_REQUIRES(mutex_) { return is_used(g); });
    if (checks_ranks()) {
      if (!mine->checks) mine->checks = std::make_shared<std::vector<Future<void>>>();
      meeting.checks = mine->checks;
    }
  }
  for (const Group& g : gone) GroupEngine::of(worker_).forget(g);
  if (auto* const own = worker_.extension<MeetingsOfWorker>()) {
    meeting.sends = own->sends();
    if (joint) own->check(*joint, group, what);  // what fails from now on finds the meeting
  }
  return meeting;
}

Meetings::OfGroup& Meetings::of(const Group& group) {
  const size_t rank = group.rank();
  auto at = std::ranges::find_if(
      groups_, [&](const auto& known) { return known->rank == rank && known->group == group; });
  if (at == groups_.end()) at = groups_.insert(at, std::make_unique<OfGroup>(OfGroup{group, rank}));
  return **at;
}

// By another rank that lives here.
bool Meetings::is_used(const Group& named) const {
  for (const auto& of : groups_)
    for (const auto& [number, series] : of->series)
      if (std::ranges::find(series.named, named, &std::pair<uint64_t, Group>::second) != series.named.end())
        return true;
  return false;
}

Meeting Meetings::at(const Group& group, const std::string& tag) {
  std::vector<Group> gone;
  const Lock lock(mutex_);
  return {named(of(group), {}, gone), kOfAllCalls + tag};
}

Meetings::CallKey Meetings::key_of(const Invocation& call) {
  return {call.from(), call.call().id, call.call().store_as, call.began()};
}

void Meetings::number_call(uint64_t number) {
  const CallKey key = key_of(frame().call->outermost());
  const Lock lock(mutex_);
  numbered_[key] = number;
}

Meetings::Call& Meetings::call_of(OfGroup& of, const Invocation& call) {
  const CallKey key = key_of(call);
  if (const auto at = of.open.find(key); at != of.open.end()) return at->second;
  if (const auto at = numbered_.find(key); at != numbered_.end())
    return of.open[key] = {.number = at->second};
  if (const uint64_t number = call.call().joint) {
    const auto joint = JointNumber::of(number);
    const std::string label = call.cell()->method_label(call.method());
    const std::string whom = joint.all ? "all" : label.substr(0, label.find(" on "));
    return of.open[key] = {.number = joint.count,
                           .kind = fmt::format(" of {}, {}.{}", whom, call.from(), joint.series),
                           .joint = joint_id(call.from(), number, call.call().method)};
  }
  const bool same_caller = key.from == of.newest.from;
  if (key.began < of.newest.began || (key.began == of.newest.began && same_caller && key.id < of.newest.id))
    throw_invalid(
        "[" + *frame().what + "] it comes to its first conversion over group \"" + of.group.name() +
        "\" after a call that began later, so that ranks may differ in which of their calls belong together: "
        "let what it waits for before come as an argument, or wait for each call before the next");
  of.newest = key;
  return of.open[key] = {.number = of.calls++};
}

Meetings::Series Meetings::series_of(const Call& call) const {
  if (!in_blocks_ || !call.joint) return {};
  return {call.joint->from, JointNumber::of(call.joint->number).series, call.joint->method};
}

// Those that were used longest ago are forgotten.
Meetings::OfSeries& Meetings::used(OfGroup& of, const Series& number, std::vector<Group>& gone) {
  const auto forget = [&](const Series& oldest, OfSeries& series) {
    for (auto& [block, group] : series.named) gone.push_back(std::move(group));
    std::erase_if(of.open, [&](const auto& x) { return series_of(x.second) == oldest; });
  };
  while (of.series.size() > kMostSeries) {
    const auto oldest = std::ranges::min_element(of.series, {}, [](const auto& x) { return x.second.used; });
    forget(oldest->first, oldest->second);
    of.series.erase(oldest);
  }
  OfSeries& series = of.series[number];
  series.used = ++of.uses;
  return series;
}

const Group& Meetings::named(OfGroup& of, const Call& call, std::vector<Group>& gone) {
  const Series number = series_of(call);
  OfSeries& series = used(of, number, gone);
  const uint64_t block = in_blocks_ ? call.number / kBlock : 0;
  if (series.named.empty() || series.named.back().first < block) {
    std::vector<size_t> ranks(of.group.size());
    for (size_t r = 0; r < ranks.size(); ++r) ranks[r] = r;
    const std::string where = in_blocks_ ? fmt::format(", calls {}{} on", block * kBlock, call.kind) : where_;
    series.named.emplace_back(block, of.group.subset(ranks, of.group.name() + where));
    while (series.named.size() > 2) {
      gone.push_back(std::move(series.named.front().second));
      series.named.pop_front();
    }
    const uint64_t first = series.named.front().first * kBlock;
    std::erase_if(of.open,
                  [&](const auto& x) { return x.second.number < first && series_of(x.second) == number; });
  }
  const auto at = std::ranges::find(series.named, block, &std::pair<uint64_t, Group>::first);
  if (at != series.named.end()) return at->second;
  throw_error(ErrorKind::overloaded,
              "[" + *frame().what + "] more than " + std::to_string(kBlock) +
                  " calls that began later use group \"" + of.group.name() +
                  "\" without a context: wait for some of them before you call others");
}

void Meetings::fail(const JointId& joint, const Error& why) {
  std::vector<std::pair<Group, std::string>> ends;
  {
    const Lock lock(mutex_);
    for (const auto& of : groups_)
      for (const auto& [key, call] : of->open)
        if (call.joint == joint)
          for (const auto& [block, group] : of->series[series_of(call)].named)
            ends.emplace_back(group, call.text() + ", "), ends.emplace_back(group, kOfAllCalls);
  }
  for (const auto& [group, tags] : ends) GroupEngine::of(worker_).fail_tags(group, tags, why);
}

void MeetingsOfWorker::install(internal::actors::Worker& worker) {
  auto* const own = new MeetingsOfWorker(worker);
  worker.add_extension(std::unique_ptr<MeetingsOfWorker>(own));
  kJointFailed.serve(worker, [own](const Invocation& call, uint64_t number, uint64_t method, ErrorKind kind,
                                   const std::string& message, const std::string& lost) {
    own->fail(joint_id(call.from(), number, method), Error(kind, message, {}, lost));
  });
  kJointWithout.serve(
      worker, [own](const Invocation& call, uint64_t number, uint64_t method, std::vector<ObjectId> others) {
        own->without(joint_id(call.from(), number, method), std::move(others));
      });
}

void MeetingsOfWorker::fail(const JointId& call, const Error& why) {
  std::vector<std::shared_ptr<Meetings>> all;
  {
    const Lock lock(mutex_);
    if (!failed_.add(call, why)) return;
    for (const auto& weak : in_contexts_)
      if (auto some = weak.lock()) all.push_back(std::move(some));
  }
  without_context_.fail(call, why);
  for (const auto& some : all) some->fail(call, why);
}

void MeetingsOfWorker::without(const JointId& call, std::vector<ObjectId> others) {
  const Lock lock(mutex_);
  without_.add(call, std::move(others));
}

void MeetingsOfWorker::check(const JointId& call, const Group& group, const char* what) {
  const Lock lock(mutex_);
  if (const Error* const why = failed_.find(call)) throw *why;
  const auto* const others = without_.find(call);
  if (!others) return;
  const auto has_no_part = [&](const ObjectId& member) {
    return std::ranges::any_of(*others, [&](const ObjectId& other) { return is_same_member(member, other); });
  };
  for (size_t r = 0; r < group.size(); ++r)
    if (has_no_part(internal::collective::ids_of(group)[r]))
      throw_invalid(fmt::format(
          "[{}] rank {} ({}) of the group has no part in this call, as a replica without rows has none, and "
          "it would be waited for: give each replica a row",
          what, r, group.label(r)));
}

std::shared_ptr<Meetings> MeetingsOfWorker::new_in_context(uint64_t context) {
  auto made = std::make_shared<Meetings>(worker_, " in context " + std::to_string(context), false);
  const Lock lock(mutex_);
  std::erase_if(in_contexts_, [](const auto& weak) { return weak.expired(); });
  in_contexts_.push_back(made);
  return made;
}

std::shared_ptr<Meetings> MeetingsOfWorker::here(const char* what) {
  if (!frame().worker)
    throw_invalid("[" + std::string(what) +
                  "] no worker runs on this thread: call it in a method of an actor");
  internal::actors::Worker& worker = *frame().worker;
  auto* const own = worker.extension<MeetingsOfWorker>();
  if (!own) throw_invalid("[" + std::string(what) + "] worker " + worker.name() + " was set up without it");
  const uint64_t context = frame().context;
  if (!context) return {std::shared_ptr<void>(), &own->without_context_};
  autograd::DistEngine& engine = *worker.extension<autograd::DistEngine>();
  const auto* const call = frame().call.get();
  const auto state = engine.contexts().join(context, call ? call->from() : kNoWorker);
  return state->keep<Meetings>([&] { return own->new_in_context(context); });
}

}  // namespace troupe::tp
