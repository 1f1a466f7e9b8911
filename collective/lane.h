// Small operations of one tag of a group whose members are on one host, in memory that they share: a rank's
// side of it.
//
// Each rank has a block in its process's arena, which it alone writes. The others have it for reading, as
// they have any large tensor that was sent to them. The rules are in lane_words.h; the words and the
// elements lie here.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collective/lane_words.h"
#include "collective/reduction.h"
#include "collective/rows.h"
#include "collective/schedule/problem.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/tensor/tensor.h"

namespace troupe::internal::collective {

/// The shared memory of one rank. Each word that it writes often has a cache line of its own.
struct LaneBlock {
  static constexpr size_t kMost = size_t{64} << 10;  ///< bytes of an operation
  static constexpr size_t kRanks = 16;
  struct Slot {
    alignas(64) std::atomic<uint64_t> state;
    std::atomic<uint64_t> what;
    alignas(64) std::byte elements[kMost];
  };
  /// Drawn for this block: a group that is used again after it was forgotten has others.
  alignas(64) uint64_t number;
  /// The numbers of the blocks that are read here, by rank; 0: none.
  std::atomic<uint64_t> reads[kRanks];
  alignas(64) std::atomic<uint64_t> called;
  std::atomic<uint64_t> asleep;
  alignas(64) std::atomic<uint64_t> done;
  alignas(64) Slot slots[kLaneSlots];
};

/// A rank calls one of these: an all_reduce, a reduce, a broadcast, an all_gather of as many rows of each
/// rank, or a barrier.
struct SmallCall {
  Collective what = Collective::all_reduce;
  ReduceOp op = ReduceOp::sum;
  size_t root = 0;
  /// What it brings, of one dtype and contiguous; then the results.
  std::span<Tensor> xs;
};

/// Operations that a lane decided, and the ranks that it has to tell.
struct LaneOutcome {
  struct Decided {
    uint64_t use;
    LaneWay way;
    Tensor result;  ///< by memory: all its elements, unless the rank gets none, or has them
  };
  std::vector<Decided> decided;
  std::vector<size_t> tell;
};

/// The caller holds mutex(), and lets go of it before it does what an outcome says.
class Lane {
 public:
  /// `first`: the next use of the tag. `block` has the bytes of a LaneBlock, of which nothing counts yet.
  Lane(Standing at, uint64_t first, Tensor block);
  Lane(const Lane&) = delete;
  Mutex& mutex() { return mutex_; }
  const Tensor& block() const { return block_; }

  /// The block of another rank, or a copy of it. Whether it is read here now.
  bool came(size_t rank, Tensor block);
  /// Whether all ranks read each other.
  bool is_ready();
  bool may_be_offered() { return !gave_up_ && !is_ready(); }
  /// All that is called from now on goes by messages.
  void give_up() { gave_up_ = true; }
  /// The rank calls nothing any more. The blocks of the others go once nothing waits for them.
  void close();
  bool is_closed() const { return closed_; }
  bool has_room() { return words_.has_room(); }
  uint64_t next() const { return words_.next(); }
  bool is_idle() const { return pending_.empty(); }

  /// The rank calls the next operation, which is to go by memory: the lane is ready, and has room. It looks
  /// as long as `spin` whether that is so: then call.xs are the results, else they are as they were. `use`:
  /// the number of the operation. `outcome` has what it decided of others.
  LaneWay call(const SmallCall& call, Duration spin, uint64_t& use, LaneOutcome& outcome);
  /// The next one goes by messages.
  void by_messages(LaneOutcome& outcome);
  /// Sleeps until it is decided: is told then, and calls wake().
  void sleep(uint64_t use, LaneOutcome& outcome);
  void wake(LaneOutcome& outcome);
  /// It has failed here.
  void failed(uint64_t use, LaneOutcome& outcome);
  /// Tells, on any thread and at any time, which ranks have not called it.
  std::function<std::vector<size_t>()> missing(uint64_t use) const;

 private:
  struct Words {
    Lane* lane;
    size_t rank() const { return lane->at_.rank; }
    size_t ranks() const { return lane->at_.ranks; }
    static constexpr bool keeps(LaneRule) { return true; }
    // The order of all of them counts where a rank writes one word and then reads another one.
    uint64_t state(size_t r, uint64_t slot) const { return lane->blocks_[r]->slots[slot].state.load(); }
    uint64_t what(size_t r, uint64_t slot) const {
      return lane->blocks_[r]->slots[slot].what.load(std::memory_order_relaxed);
    }
    uint64_t called(size_t r) const { return lane->blocks_[r]->called.load(); }
    uint64_t done(size_t r) const { return lane->blocks_[r]->done.load(std::memory_order_acquire); }
    // A rank whose block has not come does not sleep.
    uint64_t asleep(size_t r) const { return lane->blocks_[r] ? lane->blocks_[r]->asleep.load() : 0; }
    void set_state(uint64_t slot, uint64_t x) { lane->own_->slots[slot].state.store(x); }
    void set_what(uint64_t slot, uint64_t x) {
      lane->own_->slots[slot].what.store(x, std::memory_order_relaxed);
    }
    void set_called(uint64_t x) {
      if (!lane->closed_) lane->own_->called.store(x);
    }
    void set_done(uint64_t x) { lane->own_->done.store(x, std::memory_order_release); }
    void set_asleep(uint64_t x) { lane->own_->asleep.store(x); }
  };
  // An operation that this rank has in a slot.
  struct Pending {
    uint64_t use;
    Collective what;
    ReduceOp op;
    size_t root;
    DType dtype;
    size_t elements;        // that it brings
    const SmallCall* call;  // until that returns
    Tensor result;          // after it
    bool gets(size_t rank) const;
  };
  void take(uint64_t use);
  void take(const Pending& p, std::byte* to, size_t from, size_t elements) const;
  void advance(LaneOutcome& outcome, bool tells);
  void let_go();
  void put_in(LaneOutcome& outcome);
  auto taker() {
    return [this](uint64_t use) { take(use); };
  }

  const Standing at_;
  bool is_ready_ = false, gave_up_ = false, closed_ = false;  // words_ asks for it as it begins
  Mutex mutex_;
  const Tensor block_;
  LaneBlock* const own_;
  std::shared_ptr<std::vector<Tensor>> kept_;  // what blocks_ shows
  std::vector<const LaneBlock*> blocks_;
  LaneWords<Words> words_;
  std::vector<LaneWords<Words>::Decided> decided_;
  std::deque<Pending> pending_;
  uint64_t in_vain_ = 0;  // operations that were not there in time, one after the other
};

}  // namespace troupe::internal::collective
