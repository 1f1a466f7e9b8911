// Orders of more numbers than memory has room for.
#pragma once
#include <cstdint>
#include <vector>

namespace troupe::internal {

/// 0 .. n-1 in an order that looks random, the same for the same seed: any place of it is computed when it is
/// asked for (a Feistel network of four rounds on the next power of four, walked until it hits a number below
/// n; Black and Rogaway 2002). A value.
class Permutation {
 public:
  Permutation(int64_t n, uint64_t seed);
  int64_t size() const { return n_; }
  int64_t operator()(int64_t place) const;

 private:
  int64_t n_;
  uint64_t seed_;
  unsigned half_;  ///< bits
};

/// Numbers 0 .. n-1 in blocks that lie together, for sources that read a block at a time: the blocks are
/// permuted, then whatever lies in `together` blocks that follow each other. Each number is there once.
class BlockOrder {
 public:
  BlockOrder(int64_t n, int64_t block, int64_t together, uint64_t seed);
  int64_t operator()(int64_t place) const;

 private:
  int64_t in_blocks(int64_t place) const;
  int64_t n_, block_, together_;
  uint64_t seed_;
  Permutation blocks_;
  int64_t short_at_ = 0;  ///< where the last block is, which may be short
};

}  // namespace troupe::internal
