#include "collective/lane.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "core/base/clock.h"
#include "core/base/generator.h"
#include "core/base/random_bytes.h"
#include "core/graph/copy_on_write.h"
#include "core/memory/arena.h"
#include "core/memory/lent.h"
#include "core/tensor/creation.h"
#include "net/socket/loop/spin_pause.h"

namespace troupe::internal::collective {

namespace {

// Ranks whose hashes are equal bring the same.
uint64_t hash_of(const SmallCall& call) {
  const uint64_t dtype = call.xs.empty() ? 0 : static_cast<uint64_t>(call.xs[0].dtype());
  uint64_t h =
      splitmix64(static_cast<uint64_t>(call.what) << 16 | static_cast<uint64_t>(call.op) << 8 | dtype);
  h = splitmix64(h ^ call.root << 32 ^ call.xs.size());
  for (const Tensor& x : call.xs) {
    h = splitmix64(h ^ static_cast<uint64_t>(x.dim()));
    for (int64_t d = 0; d < x.dim(); ++d) h = splitmix64(h ^ static_cast<uint64_t>(x.size(d)));
  }
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

bool Lane::Pending::gets(size_t rank) const {
  if (what == Collective::barrier) return false;
  if (what == Collective::reduce) return rank == root;
  return what != Collective::broadcast || rank != root;  // the root of a broadcast has it
}

// Elements of the slots from `from` on, of which those of one rank lie together.
void Lane::take(const Pending& p, std::byte* to, size_t from, size_t elements) const {
  const uint64_t slot = p.use % kLaneSlots;
  const size_t item = item_size(p.dtype);
  const auto in = [&](size_t r) { return blocks_[r]->slots[slot].elements + from * item; };
  if (p.what == Collective::broadcast) {
    std::memcpy(to, in(p.root), elements * item);
  } else if (p.what == Collective::all_gather) {
    for (size_t r = 0; r < at_.ranks; ++r) std::memcpy(to + r * elements * item, in(r), elements * item);
  } else {
    std::array<const std::byte*, LaneBlock::kRanks> summands;
    for (size_t r = 0; r < at_.ranks; ++r) summands[r] = in(r);
    reduce_elements(p.op, p.dtype, to, std::span(summands.data(), at_.ranks), elements,
                    p.op == ReduceOp::mean ? at_.ranks : 1);
  }
}

// Ways go to decided_, and the elements to the operation.
void Lane::take(uint64_t use) {
  Pending& p = *std::ranges::find(pending_, use, &Pending::use);
  const size_t ranks = p.what == Collective::all_gather ? at_.ranks : 1;
  if (!p.call) {
    if (!p.gets(at_.rank)) return;
    p.result = empty({static_cast<int64_t>(p.elements * ranks)}, p.dtype);
    return take(p, p.result.bytes(), 0, p.elements);
  }
  size_t from = 0;
  for (Tensor& x : p.call->xs) {
    const auto elements = static_cast<size_t>(x.numel());
    if (p.gets(at_.rank)) {
      if (ranks > 1)
        x = empty(with_rows(rows_of(x) * static_cast<int64_t>(ranks), row_of(x)), p.dtype);
      else if (!x.is_exclusive())
        x = empty(x.shape(), p.dtype);
      take(p, x.bytes(), from, elements);
    } else if (p.what == Collective::reduce) {
      x = {};
    } else if (!x.is_exclusive()) {
      x = internal::lazy_copy(x);
    }
    from += elements;
  }
}

void Lane::put_in(LaneOutcome& outcome) {
  for (const auto& [use, way] : decided_) {
    const auto at = std::ranges::find(pending_, use, &Pending::use);
    if (at == pending_.end()) continue;
    outcome.decided.push_back({use, way, way == LaneWay::memory ? std::move(at->result) : Tensor()});
    pending_.erase(at);
  }
  decided_.clear();
}

void Lane::advance(LaneOutcome& outcome, bool tells) {
  words_.advance(decided_, taker(), [&](size_t r) { outcome.tell.push_back(r); }, tells);
  put_in(outcome);
  let_go();
}

LaneWay Lane::call(const SmallCall& call, Duration spin, uint64_t& use, LaneOutcome& outcome) {
  // Whoever has waited in vain some times is with others that come later, and tries again at times only.
  constexpr uint64_t kInVain = 4, kTriesAgain = 64;
  const bool none_before = pending_.empty(),
             brings = call.what != Collective::broadcast || at_.rank == call.root;
  const uint64_t what = hash_of(call);
  size_t elements = 0;
  use = words_.by_memory(what, [&](uint64_t slot) {
    std::byte* to = own_->slots[slot].elements;
    for (const Tensor& x : call.xs) {
      elements += static_cast<size_t>(x.numel());
      if (brings) std::memcpy(to, x.bytes(), x.nbytes()), to += x.nbytes();
    }
  });
  for (const Tensor& x : call.xs)
    if (x.nbytes() >= Arena::kSmallest && x.is_sole_handle()) collect_lent();  // who had it may have let go
  pending_.push_back({.use = use,
                      .what = call.what,
                      .op = call.op,
                      .root = call.root,
                      .dtype = call.xs.empty() ? DType::float32 : call.xs[0].dtype(),
                      .elements = elements,
                      .call = &call,
                      .result = {}});
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
    pending_.back().call = nullptr;  // the caller takes what is made later
    return LaneWay::open;
  }
  const LaneWay way = mine->way;
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
