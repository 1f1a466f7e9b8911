// A sequence, and the positions of it that each rank has.
#pragma once
#include <cstdint>
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe::cp {

/// Positions [from, from + size) of a sequence.
struct Positions {
  int64_t from = 0, size = 0;
  int64_t end() const { return from + size; }
  bool operator==(const Positions&) const = default;
};

/// How a sequence is cut: `in_order` gives the first rank the first positions, and so on; `zigzag` makes
/// twice as many pieces, of which rank r has piece r and, counted from the end, piece r: so all have the same
/// work under a causal mask.
enum class Cut { in_order, zigzag };

/// The positions of a sequence, cut over ranks as evenly as they go. A sequence may be shorter than its
/// ranks: then some have no position. A value.
class Sequence {
 public:
  /// `invalid` for a negative time, or without ranks.
  Sequence(int64_t time, size_t ranks, Cut cut = Cut::zigzag);

  int64_t time() const { return time_; }
  size_t ranks() const { return of_.size(); }
  /// A rank has these positions, in order; no piece is empty.
  const std::vector<Positions>& of(size_t rank) const& { return of_.at(rank); }
  std::vector<Positions> of(size_t rank) && { return of_.at(rank); }
  /// How many each rank has.
  std::vector<int64_t> sizes() const;
  /// What a rank has of x, whose dimension `dim` is the sequence. Differentiable.
  Tensor piece(const Tensor& x, int64_t dim, size_t rank) const;
  /// The pieces of all ranks, one behind the other along `dim`, in the order of the sequence; and back.
  Tensor in_order(const Tensor& pieces, int64_t dim) const;
  Tensor by_ranks(const Tensor& x, int64_t dim) const;

 private:
  void check(const Tensor& x, int64_t dim) const;
  int64_t time_;
  std::vector<std::vector<Positions>> of_;
};

}  // namespace troupe::cp
