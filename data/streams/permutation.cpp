#include "data/streams/permutation.h"

#include <algorithm>
#include <utility>

#include "core/base/generator.h"

namespace troupe::internal {

Permutation::Permutation(int64_t n, uint64_t seed) : n_(n), seed_(splitmix64(seed)), half_(1) {
  while (half_ < 31 && (int64_t{1} << (2 * half_)) < n) ++half_;
}

int64_t Permutation::operator()(int64_t place) const {
  constexpr uint64_t kRounds = 4;
  const uint64_t mask = (uint64_t{1} << half_) - 1;
  auto x = static_cast<uint64_t>(place);
  do {
    uint64_t left = x >> half_, right = x & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = splitmix64(seed_ + splitmix64(right * kRounds + round)) & mask;
      left = std::exchange(right, left ^ mixed);
    }
    x = left << half_ | right;
  } while (x >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(x);
}

// Blocks are no longer than all numbers, and together no more than these: so nothing is too large to count.
BlockOrder::BlockOrder(int64_t n, int64_t block, int64_t together, uint64_t seed)
    : n_(n),
      block_(std::min(block, n)),
      together_(together > n / block_ ? n : block_ * together),
      seed_(seed),
      blocks_(n / block_ + (n % block_ != 0), seed) {
  while (short_at_ < blocks_.size() && blocks_(short_at_) != blocks_.size() - 1) ++short_at_;
}

// The number at a place, if blocks alone are permuted.
int64_t BlockOrder::in_blocks(int64_t place) const {
  const int64_t missing = blocks_.size() * block_ - n_, before = short_at_ * block_;
  if (place >= before + block_ - missing) place += missing;
  return blocks_(place / block_) * block_ + place % block_;
}

int64_t BlockOrder::operator()(int64_t place) const {
  const int64_t first = place / together_ * together_, size = std::min(together_, n_ - first);
  const Permutation within(size, seed_ + splitmix64(static_cast<uint64_t>(first) + 1));
  return in_blocks(first + within(place - first));
}

}  // namespace troupe::internal
