// The patterns that schedules consist of, in blocks: which block goes to whom in which step.
#pragma once
#include <cstddef>
#include <vector>

#include "collective/schedule/step.h"

namespace troupe::internal::collective {

/// Blocks [first, last); none where these are one.
struct BlockSend {
  size_t to, first, last;
};
struct BlockReceive {
  size_t from, first, last;
  Take take;
};
struct BlockStep {
  std::vector<BlockSend> sends = {};
  std::vector<BlockReceive> receives = {};
};
using BlockSteps = std::vector<BlockStep>;
/// One behind the other.
BlockSteps operator+(BlockSteps a, const BlockSteps& b);

/// The largest power of two that is not above n.
size_t power_below(size_t n);

// What rank r of n does. Rank k is to have block k unless something else is said.
/// Each sends its only block to all, and adds theirs.
BlockSteps everything_to_all(size_t r, size_t n);
BlockSteps everybody_to_all(size_t r, size_t n);  ///< the same, without a sum
/// Everybody's block k goes to rank k, which adds it.
BlockSteps direct_sum(size_t r, size_t n);
BlockSteps direct_spread(size_t r, size_t n);  ///< each sends its block to all
BlockSteps ring_sum(size_t r, size_t n);
BlockSteps ring_spread(size_t r, size_t n);
/// The root's block k goes to rank k, or its only block to all.
BlockSteps from_root(size_t r, size_t n, size_t root, bool own_blocks);
/// Block `block` goes to the root.
BlockSteps to_root(size_t r, size_t n, size_t root, size_t block, Take take);
/// Of one block. In the order of order_of_sum(), whichever rank is the root.
BlockSteps tree_sum(size_t r, size_t n, size_t root);
BlockSteps tree_spread(size_t r, size_t n, size_t root);
/// Of one block, and of power_below(n) blocks.
BlockSteps doubling_steps(size_t r, size_t n);
BlockSteps halving_steps(size_t r, size_t n);
/// Block from * n + to goes from `from` to `to`.
BlockSteps exchange(size_t r, size_t n);
/// After it each rank has heard of all, directly or not.
BlockSteps dissemination(size_t r, size_t n);
/// What `steps` says, and that nobody is done before all have come with the same: those who get no block of a
/// rank get an empty message of it. Of ranks that send each other one block at most.
BlockSteps heard_by_all(size_t r, size_t n, BlockSteps steps);
/// The same of blocks that come from the root first: it hears of all before the next step.
BlockSteps heard_by_root(size_t r, size_t n, size_t root, BlockSteps steps);

}  // namespace troupe::internal::collective
