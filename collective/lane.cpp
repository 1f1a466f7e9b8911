#include "collective/lane.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "core/base/clock.h"
#include "core/base/generator.h"
#include "core/base/random_bytes.h"
#include "core/memory/arena.h"
#include "core/memory/lent.h"
#include "core/tensor/creation.h"
#include "net/socket/loop/spin_pause.h"

namespace troupe::internal::collective {

namespace {

uint64_t hash_of_summand(const Tensor& x, ReduceOp op) {
  uint64_t h = splitmix64(static_cast<uint64_t>(op) << 8 | static_cast<uint64_t>(x.dtype()));
  for (int64_t d = 0; d < x.dim(); ++d) h = splitmix64(h ^ static_cast<uint64_t>(x.size(d)));
  return h;
}

// The elements of a slot are written before they are read, and need not be zeros.
LaneBlock* begin_block(const Tensor& block) {
  if (block.nbytes() < sizeof(LaneBlock)) throw_invalid("[group] a lane needs a larger block");
  auto* const b = reinterpret_cast<LaneBlock*>(block.bytes());
  b->number = random_number() | 1;
  for (auto& x : b->reads) new (&x) std::atomic<uint64_t>(0);
  for (auto* x : {&b->called, &b->asleep, &b->done}) new (x) std::atomic<uint64_t>(0);
  for (auto& slot : b->slots) {
    new (&slot.state) std::atomic<uint64_t>(0);
    new (&slot.what) std::atomic<uint64_t>(0);
  }
  return b;
}

}  // namespace

Lane::Lane(Standing at, uint64_t first, Tensor block)
    : at_(at),
      block_(std::move(block)),
      own_(begin_block(block_)),
      kept_(std::make_shared<std::vector<Tensor>>(at.ranks)),
      blocks_(at.ranks),
      words_((blocks_[at.rank] = own_, Words{this}), first) {}

bool Lane::came(size_t rank, Tensor block) {
  if (gave_up_ || rank >= at_.ranks || rank == at_.rank || !block.defined() ||
      block.nbytes() != block_.nbytes() || !block.is_contiguous())
    return false;
  const auto* const there = reinterpret_cast<const LaneBlock*>(block.bytes());
  if (blocks_[rank]) {
    // Another one is of a rank that has begun anew, and counts from 0 again.
    if (own_->reads[rank].load() != there->number) give_up();
    return !gave_up_;
  }
  (*kept_)[rank] = std::move(block);
  blocks_[rank] = there;
  own_->reads[rank].store(there->number);
  return true;
}

bool Lane::is_ready() {
  if (is_ready_ || gave_up_) return !gave_up_;
  for (size_t r = 0; r < at_.ranks; ++r)
    if (r != at_.rank && (!blocks_[r] || blocks_[r]->reads[at_.rank].load() != own_->number)) return false;
  return is_ready_ = true;
}

void Lane::let_go() {
  if (!closed_ || !pending_.empty()) return;
  kept_.reset();
  std::ranges::fill(blocks_, nullptr);
  blocks_[at_.rank] = own_;
}

void Lane::close() {
  give_up();
  closed_ = true;
  own_->called.store(UINT64_MAX);
  let_go();
}

// Ways go to decided_, and a sum to its operation.
void Lane::take(uint64_t use) {
  const auto at = std::ranges::find(pending_, use, &Pending::use);
  const uint64_t slot = use % kLaneSlots;
  std::array<const std::byte*, LaneBlock::kRanks> summands;
  for (size_t r = 0; r < at_.ranks; ++r) summands[r] = blocks_[r]->slots[slot].elements;
  if (!at->sum.defined()) at->sum = empty(at->shape, at->dtype);
  reduce_elements(at->op, at->dtype, at->sum.bytes(), std::span(summands.data(), at_.ranks),
                  static_cast<size_t>(at->sum.numel()), at->op == ReduceOp::mean ? at_.ranks : 1);
}

void Lane::put_in(LaneOutcome& outcome) {
  for (const auto& [use, way] : decided_) {
    const auto at = std::ranges::find(pending_, use, &Pending::use);
    if (at == pending_.end()) continue;
    outcome.decided.push_back({use, way, way == LaneWay::memory ? std::move(at->sum) : Tensor()});
    pending_.erase(at);
  }
  decided_.clear();
}

void Lane::advance(LaneOutcome& outcome, bool tells) {
  words_.advance(decided_, taker(), [&](size_t r) { outcome.tell.push_back(r); }, tells);
  put_in(outcome);
  let_go();
}

LaneWay Lane::reduce(Tensor& x, ReduceOp op, Duration spin, uint64_t& use, LaneOutcome& outcome) {
  // Whoever has waited in vain some times is with others that come later, and tries again at times only.
  constexpr uint64_t kInVain = 4, kTriesAgain = 64;
  const bool none_before = pending_.empty();
  const uint64_t what = hash_of_summand(x, op);
  use = words_.by_memory(
      what, [&](uint64_t slot) { std::memcpy(own_->slots[slot].elements, x.bytes(), x.nbytes()); });
  if (x.nbytes() >= Arena::kSmallest && x.is_sole_handle()) collect_lent();  // who had it may have let go
  const bool in_place = x.is_exclusive();
  pending_.push_back({use, op, x.dtype(), x.shape(), in_place ? x : Tensor()});
  if (none_before) {
    LaneWay found = words_.find(use, what);
    if (found == LaneWay::open && spin > Duration(0) && (in_vain_ < kInVain || in_vain_ % kTriesAgain == 0)) {
      const TimePoint end = Clock::system().now() + spin;
      for (int i = 1; found == LaneWay::open && (i % 16 || Clock::system().now() < end); ++i) {
        net::spin_pause();
        found = words_.find(use, what);
      }
    }
    in_vain_ = found == LaneWay::open ? in_vain_ + 1 : 0;
  }
  advance(outcome, true);
  const auto mine = std::ranges::find(outcome.decided, use, &LaneOutcome::Decided::use);
  if (mine == outcome.decided.end()) {
    pending_.back().sum = {};  // the caller has `x`, and takes what is made later
    return LaneWay::open;
  }
  const LaneWay way = mine->way;
  if (way == LaneWay::memory) x = std::move(mine->sum);
  outcome.decided.erase(mine);
  return way;
}

void Lane::by_messages(LaneOutcome& outcome) {
  const auto tell = [&](size_t r) { outcome.tell.push_back(r); };
  words_.by_messages(tell);
  advance(outcome, true);
}

void Lane::sleep(uint64_t use, LaneOutcome& outcome) {
  words_.sleep(use, decided_, taker());
  put_in(outcome);
}

void Lane::wake(LaneOutcome& outcome) { advance(outcome, false); }

std::function<std::vector<size_t>()> Lane::missing(uint64_t use) const {
  struct Shown {
    Standing at;
    std::vector<const LaneBlock*> blocks;
    std::shared_ptr<std::vector<Tensor>> kept;  // while they are looked at
    size_t rank() const { return at.rank; }
    size_t ranks() const { return at.ranks; }
    uint64_t called(size_t r) const { return blocks[r]->called.load(); }
    uint64_t state(size_t r, uint64_t slot) const { return blocks[r]->slots[slot].state.load(); }
  };
  return [shown = Shown{at_, blocks_, kept_}, use] { return missing_in(shown, use); };
}

void Lane::failed(uint64_t use, LaneOutcome& outcome) {
  words_.failed(use);
  std::erase_if(pending_, [use](const Pending& p) { return p.use == use; });
  advance(outcome, false);
}

}  // namespace troupe::internal::collective
