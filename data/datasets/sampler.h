// Which samples, in what order, in which batches: values made of row numbers, that can be put together.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/even_sizes.h"

namespace troupe::datasets {

/// Row numbers in the order in which they are visited.
using Order = std::vector<int64_t>;

/// 0 .. n-1. `invalid` if n is negative, as for the others.
Order sequential(int64_t n);
/// 0 .. n-1 in random order: epoch e has an order of its own, the same in every run and on every rank.
Order shuffled(int64_t n, uint64_t seed, int64_t epoch);

namespace detail {
/// `invalid` unless 0 <= rank < ranks.
void check_rank(int64_t rank, int64_t ranks);
}  // namespace detail

/// What happens where the number of samples is no multiple of the number of ranks.
enum class Uneven {
  pad,   ///< some are seen twice: the first ones of the order follow its last, so that every rank has as many
  drop,  ///< the last ones of the order, fewer than there are ranks, are left out
};

/// The part of one rank: items rank, rank + ranks, rank + 2 ranks, ... of the whole, which all ranks must
/// have the same (same seed, same epoch). Every rank gets as many. Together they are the whole, each item
/// once, but for what `uneven` says. Items are row numbers or batches of them. `invalid`: rank outside [0,
/// ranks).
template <class Item>
std::vector<Item> shard(const std::vector<Item>& whole, int64_t rank, int64_t ranks,
                        Uneven uneven = Uneven::pad) {
  detail::check_rank(rank, ranks);
  const size_t n = whole.size(), step = static_cast<size_t>(ranks);
  const size_t each = uneven == Uneven::pad ? (n + step - 1) / step : n / step;
  std::vector<Item> out;
  out.reserve(each);
  for (size_t i = 0; i < each; ++i) out.push_back(whole[(static_cast<size_t>(rank) + i * step) % n]);
  return out;
}

/// How many of `count` items one rank has if they are divided as evenly as they go: the first ranks have one
/// more.
int64_t part_size(int64_t count, int64_t rank, int64_t ranks);

/// The part of one rank of a batch that all ranks work on together: part_size() items in a row, so that the
/// parts in the order of the ranks are the batch. Nothing is repeated nor left out; of a small batch some
/// ranks have nothing. `invalid`: rank outside [0, ranks).
template <class Item>
std::vector<Item> part(const std::vector<Item>& whole, int64_t rank, int64_t ranks) {
  detail::check_rank(rank, ranks);
  const int64_t count = static_cast<int64_t>(whole.size());
  const auto first = whole.begin() + internal::even_begin(count, rank, ranks);
  return {first, first + part_size(count, rank, ranks)};
}

/// An order cut into batches; the last may be shorter, or is left out with `drop_last`. `invalid`: a size
/// below 1.
std::vector<Order> batches(const Order& order, int64_t batch_size, bool drop_last = false);

struct BucketOptions {
  int64_t batch_size = 32;
  /// Batches that are sorted by length at a time: more of them, less padding and less chance.
  int64_t pool = 100;
  /// Batches that stay side by side, of neighbouring lengths: the number of ranks, so that in every round all
  /// ranks have work of about the same size after shard(..., rank, ranks).
  int64_t group = 1;
  bool drop_last = false;  ///< of the order, before it is sorted
  uint64_t seed = 0;
};

/// Batches of samples of similar length: the order is cut into pools, each pool sorted by length and cut into
/// batches, and all groups of batches are put in random order. lengths[i] is that of row i. `invalid`: a row
/// without a length, an option below 1.
std::vector<Order> length_buckets(const Order& order, const std::vector<int64_t>& lengths,
                                  const BucketOptions& options, int64_t epoch);

}  // namespace troupe::datasets
