#include "collective/lanes.h"

#include <algorithm>
#include <utility>

#include "actors/cell/actor_cell.h"
#include "collective/group_number.h"
#include "core/base/clock.h"
#include "core/base/thread.h"
#include "core/memory/arena.h"
#include "core/tensor/creation.h"

namespace troupe::internal::collective {

namespace {

// A tensor of a floating dtype stays where it lies as it is sent; others are copied on arrival. Undefined:
// the process shares no memory.
Tensor new_block() {
  if (!Arena::of_process()) return {};
  Tensor block = empty({static_cast<int64_t>((sizeof(LaneBlock) + 3) / 4)}, DType::float32);
  return Arena::has(block.bytes()) ? block : Tensor();
}

bool in_group(const LaneKey& key, uint64_t group) { return key.group == group; }

// Messages refuse what has no place in a slot, and count it.
bool may_be_in_slot(const SmallCall& call, size_t ranks) {
  size_t bytes = 0;
  for (const Tensor& x : call.xs) {
    if (!x.defined() || !x.device().is_cpu() || !x.is_contiguous() || x.dtype() != call.xs[0].dtype())
      return false;
    bytes += x.nbytes();
  }
  if (call.root >= ranks || (bytes == 0) != (call.what == Collective::barrier) ||
      bytes * (call.what == Collective::all_gather ? ranks : 1) > LaneBlock::kMost)
    return false;
  if (!Problem{.collective = call.what}.adds()) return call.op == ReduceOp::sum;
  if (static_cast<int>(call.op) >= kReduceOpCount) return false;
  try {
    check_reduction(name(call.what), call.op, call.xs[0].dtype());
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace

void NamedLane::let_others_go_first() {
  constexpr Duration kOften = std::chrono::milliseconds(1);  // for other coroutines, which no count shows
  const auto cell = actors::current_cell();
  if (!cell) return;
  const TimePoint now = Clock::system().now();
  if (!cell->queued() && now - gave_way < kOften) return;
  gave_way = now;
  cell->give_way();
}

void Lanes::serve(const std::shared_ptr<Lanes>& lanes, actors::Worker& worker) {
  kLane.serve(worker, [lanes](actors::Invocation& call, const RankAddress& a, Tensor block) {
    return lanes->came(call.from(), a, std::move(block));
  });
  kWake.serve(worker, [lanes](const RankAddress& a) { lanes->woken(a); });
}

LanePtr Lanes::find(const LaneKey& key) const {
  const Lock lock(mutex_);
  const auto at = lanes_.find(key);
  return at == lanes_.end() ? nullptr : at->second;
}

LanePtr Lanes::make(const LaneKey& key, const std::vector<GroupMember>& members, uint64_t use,
                    const LanePtr& have) {
  const uint64_t uses = use + 1;
  if (uses < kFirst || (uses & (uses - 1)) != 0) return nullptr;
  if (&worker_.clock() != &Clock::system()) return nullptr;  // what is simulated depends on nothing else
  if (have) return have->may_be_offered() ? have : nullptr;
  Tensor block = new_block();
  if (!block.defined()) return nullptr;
  auto lane = std::make_shared<NamedLane>(key, members, uses, std::move(block));
  lane->read_by.resize(members.size());
  const Lock lock(mutex_);
  if (stopped_ || lanes_.size() >= kMost) return nullptr;
  lanes_[key] = lane;
  made_.fetch_add(1, std::memory_order_release);
  return lane;
}

void Lanes::offer(const LanePtr& lane) {
  for (size_t r = 0; r < lane->members.size(); ++r) {
    if (r == lane->key.rank) continue;
    {
      const Lock lock(lane->mutex());
      if (lane->read_by[r]) continue;
    }
    CallFrameScope neutral({&worker_});
    const RankAddress to{lane->key.group, r, lane->key.rank, lane->key.tag, 0};
    kLane.ask(worker_, lane->members[r].worker, to, lane->block())
        .on_ready([lane, r](const Result<bool>& is) {
          const Lock lock(lane->mutex());
          lane->read_by[r] = is.ok() && is.value();
        });
  }
}

// Only memory of the other process is of use: a copy never changes. A rank that has no lane yet is offered
// the block again.
bool Lanes::came(WorkerId sender, const RankAddress& a, Tensor block) {
  if (!block.defined() || !block.device().is_cpu() || !block.storage()->borrowed()) return false;
  const LanePtr lane = find({a.group, a.to, a.tag});
  if (!lane) return false;
  if (a.from >= lane->members.size() || lane->members[a.from].worker != sender)
    throw_invalid("collective.lane came from a worker that is not that rank's");
  const Lock lock(lane->mutex());
  return lane->came(a.from, std::move(block));
}

bool Lanes::call(const Group& group, const SmallCall& call, const CollectiveOptions& options,
                 LaneTurn& turn) {
  if (options.single_use || options.context || !options.way.empty() || !options.rows.empty() ||
      !may_be_in_slot(call, group.size()))
    return false;
  const size_t rank = group.rank();
  LanePtr lane = find({number_of(group), rank, options.tag});
  if (!lane) return false;
  turn = LaneTurn(std::move(lane));
  if (!turn.lane->is_ready() || !turn.lane->has_room()) {
    turn.lock.unlock();
    turn.lane = nullptr;
    return false;
  }
  // A member that waits keeps others from calling where they are more than cores.
  static const auto cores = static_cast<size_t>(usable_cores());
  constexpr Duration kShortly = std::chrono::microseconds(20);
  turn.way = turn.lane->call(call, group.size() <= cores ? kShortly : Duration(0), turn.use, turn.outcome);
  turn.in_slot = true;
  if (turn.way != LaneWay::memory) return false;
  if (const uint64_t use = table_->done_at_once(turn.lane->key.group, rank, options.tag); use != turn.use)
    throw_error(ErrorKind::failed, "[" + std::string(name(call.what)) + "] a rank counts use " +
                                       std::to_string(use) + " of tag \"" + options.tag + "\" as use " +
                                       std::to_string(turn.use));
  done_.fetch_add(1, std::memory_order_relaxed);
  turn.lane->let_others_go_first();
  end(std::move(turn));
  return true;
}

void Lanes::woken(const RankAddress& a) {
  LaneTurn turn(find({a.group, a.to, a.tag}));
  if (!turn.lane) return;
  turn.lane->wake(turn.outcome);
  end(std::move(turn));
}

void Lanes::failed(const LanePtr& lane, uint64_t use) {
  LaneTurn turn(lane);
  lane->failed(use, turn.outcome);
  end(std::move(turn));
}

void Lanes::end(LaneTurn turn) {
  if (!turn.lane) return;
  const bool goes = turn.lane->is_closed() && turn.lane->is_idle();
  turn.lock.unlock();
  if (goes) erase(turn.lane);
  for (const size_t r : turn.outcome.tell) {
    CallFrameScope neutral({&worker_});
    (void)kWake.tell(worker_, turn.lane->members[r].worker,
                     {turn.lane->key.group, r, turn.lane->key.rank, turn.lane->key.tag, 0});
  }
  for (auto& d : turn.outcome.decided) {
    if (d.way == LaneWay::memory) done_.fetch_add(1, std::memory_order_relaxed);
    decided_(turn.lane->id(d.use), std::move(d));
  }
}

template <class F>
std::vector<LanePtr> Lanes::those(F f) const {
  std::vector<LanePtr> all;
  const Lock lock(mutex_);
  for (const auto& [key, lane] : lanes_)
    if (f(*lane)) all.push_back(lane);
  return all;
}

void Lanes::lost(WorkerId worker) {
  const auto has = [&](const NamedLane& l) {
    return std::ranges::find(l.members, worker, &GroupMember::worker) != l.members.end();
  };
  close(those(has), false);
}

void Lanes::broken(uint64_t group) {
  close(those([&](const NamedLane& l) { return in_group(l.key, group); }), false);
}

void Lanes::give_up(uint64_t group, const std::string& begin) {
  const auto is = [&](const NamedLane& l) { return in_group(l.key, group) && l.key.tag.starts_with(begin); };
  for (const LanePtr& lane : those(is)) {
    const Lock lock(lane->mutex());
    lane->give_up();
  }
}

// Operations that a rank has called go on: their lane goes when they are over.
void Lanes::close(const std::vector<LanePtr>& lanes, bool at_once) {
  for (const LanePtr& lane : lanes) {
    bool goes;
    {
      const Lock lock(lane->mutex());
      lane->close();
      goes = at_once || lane->is_idle();
    }
    if (goes) erase(lane);
  }
}

void Lanes::erase(const LanePtr& lane) {
  const Lock lock(mutex_);
  if (const auto at = lanes_.find(lane->key); at != lanes_.end() && at->second == lane) lanes_.erase(at);
}

void Lanes::drop(uint64_t group) {
  close(those([&](const NamedLane& l) { return in_group(l.key, group); }), true);
}

void Lanes::drop(uint64_t group, size_t rank) {
  const auto is = [&](const LaneKey& key) { return in_group(key, group) && key.rank == rank; };
  close(those([&](const NamedLane& l) { return is(l.key); }), false);
}

void Lanes::stop() {
  {
    const Lock lock(mutex_);
    stopped_ = true;
  }
  close(those([](const NamedLane&) { return true; }), true);
}

}  // namespace troupe::internal::collective
