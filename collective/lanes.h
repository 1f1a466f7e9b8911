// The lanes of a worker's ranks: how they come to be, offer their blocks, wake each other, and end.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collective/collective_messages.h"
#include "collective/group.h"
#include "collective/lane.h"

namespace troupe::internal::collective {

/// Whether members that share memory do it there, if they leave the way open.
inline bool goes_by_memory(Collective c, size_t ranks, size_t bytes, size_t hosts) {
  const bool is_one = c == Collective::all_reduce || c == Collective::reduce || c == Collective::broadcast ||
                      c == Collective::all_gather || c == Collective::barrier;
  return is_one && hosts == 1 && ranks > 1 && ranks <= LaneBlock::kRanks && bytes <= LaneBlock::kMost;
}

/// A rank and a tag of a group.
struct LaneKey {
  uint64_t group;
  size_t rank;
  std::string tag;
  auto operator<=>(const LaneKey&) const = default;
};

struct NamedLane : Lane {
  NamedLane(LaneKey key, std::vector<GroupMember> members, uint64_t first, Tensor block)
      : Lane({key.rank, members.size()}, first, std::move(block)),
        key(std::move(key)),
        members(std::move(members)) {}
  const LaneKey key;
  const std::vector<GroupMember> members;
  std::vector<bool> read_by;  // mutex()
  TimePoint gave_way{};       // likewise
  /// The calling actor handles what waits for it first, if anything does: its coroutine need never be
  /// suspended else.
  void let_others_go_first();
  OperationId id(uint64_t use) const { return {key.group, key.rank, key.tag, use}; }
};
using LanePtr = std::shared_ptr<NamedLane>;

/// Held while a rank's call takes its use of the tag, so that the lane and the table of operations count
/// alike.
struct LaneTurn {
  LaneTurn() = default;
  explicit LaneTurn(LanePtr l) : lane(std::move(l)) {
    if (lane) lock = std::unique_lock(lane->mutex());
  }
  LanePtr lane = {};
  std::unique_lock<Mutex> lock = {};
  bool in_slot = false;  ///< it has `use` already,
  uint64_t use = 0;
  LaneWay way = LaneWay::open;  ///< and that is known of it
  LaneOutcome outcome = {};
};

/// Thread-safe. Kept by actors that are members, too.
class Lanes {
 public:
  /// What was decided of an operation that is in the table.
  using Decided = std::function<void(const OperationId&, LaneOutcome::Decided)>;
  static constexpr size_t kMost = 64;    ///< of a worker: 256 KiB each
  static constexpr uint64_t kFirst = 4;  ///< uses of a tag go by messages before it gets one

  Lanes(actors::Worker& worker, std::shared_ptr<Operations> table, Decided decided)
      : worker_(worker), table_(std::move(table)), decided_(std::move(decided)) {}
  /// Part of the worker's set-up.
  static void serve(const std::shared_ptr<Lanes>& lanes, actors::Worker& worker);

  /// How many there have been.
  size_t made() const { return made_.load(std::memory_order_acquire); }
  LanePtr find(const LaneKey& key) const;
  /// After `use` of a tag, by which small operations of members on one host go: makes its lane, or gives the
  /// one that it has (`have`), for offer(). The caller keeps others from using the tag.
  LanePtr make(const LaneKey& key, const std::vector<GroupMember>& members, uint64_t use,
               const LanePtr& have);
  void offer(const LanePtr& lane);
  /// Operations that were done by memory.
  int64_t done() const { return done_.load(std::memory_order_relaxed); }
  /// GroupEngine::call_by_memory().
  bool call(const Group& group, const SmallCall& call, const CollectiveOptions& options, LaneTurn& turn);
  /// Lets go of the turn, and does what follows.
  void end(LaneTurn turn);
  void failed(const LanePtr& lane, uint64_t use);
  /// Nothing more comes from a worker: its groups are broken.
  void lost(WorkerId worker);
  void broken(uint64_t group);
  /// Operations go by messages from now on whose tags begin so.
  void give_up(uint64_t group, const std::string& begin);
  /// The group, or a rank of it, calls nothing any more.
  void drop(uint64_t group);
  void drop(uint64_t group, size_t rank);
  void stop();
  size_t size() const {
    const Lock lock(mutex_);
    return lanes_.size();
  }

 private:
  bool came(WorkerId sender, const RankAddress& address, Tensor block);
  void woken(const RankAddress& address);
  void close(const std::vector<LanePtr>& lanes, bool at_once);
  void erase(const LanePtr& lane);
  template <class F>
  std::vector<LanePtr> those(F f) const;

  actors::Worker& worker_;
  const std::shared_ptr<Operations> table_;
  const Decided decided_;
  std::atomic<size_t> made_{0};
  std::atomic<int64_t> done_{0};
  mutable Mutex mutex_;
  bool stopped_ TROUPE_GUARDED_BY(mutex_) = false;
  std::map<LaneKey, LanePtr> lanes_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::internal::collective
