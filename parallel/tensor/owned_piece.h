// What an actor has of the parameters of a whole model, whatever has cut them: ranks, replicas, or both.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "actors/actor.h"
#include "core/tensor/tensor.h"
#include "parallel/tensor/placement.h"

namespace troupe::parallel {

struct OwnedPiece {
  Shape whole;
  int64_t dim = 0;
  std::vector<tp::Placement::Range> ranges;  ///< along it, one behind the other; none: all
  /// Replicas divide that: it has `count` elements of these, from `from` on, in one dimension.
  bool flat = false;
  int64_t from = 0, count = 0;

  static OwnedPiece all_of(const Shape& shape) { return {shape, 0, {}, false, 0, shape.numel()}; }
  /// As numbers, for files and messages. The way back is `invalid`, naming `what`, if they are none of a
  /// piece.
  std::vector<int64_t> numbers() const;
  static OwnedPiece of_numbers(const std::vector<int64_t>& numbers, const std::string& what);

  /// Of what the ranges hold.
  Shape local() const;
  /// Calls f(place in the whole, place in the piece, elements) for what is contiguous in both.
  void for_each_run(const std::function<void(int64_t, int64_t, int64_t)>& f) const;
  /// A copy of what it has of the whole tensor, which is contiguous and on the CPU.
  Tensor cut(const Tensor& of_whole) const;
  bool operator==(const OwnedPiece& o) const { return numbers() == o.numbers(); }
};
/// By the names of the actor's module.
using OwnedPieces = std::map<std::string, OwnedPiece>;

/// In its mailbox: of the parameters that are cut over ranks, or that replicas have divided, also of those
/// that it has no element of.
OwnedPieces pieces_of(Actor& actor);
/// How a tensor of that shape lies in the whole: in a way that `pieces` have of the parameter, or it is all.
/// `invalid`, beginning with `what`, if it is neither.
OwnedPiece fitted(const OwnedPieces& pieces, const std::string& parameter, const Shape& shape,
                  const std::string& what);

}  // namespace troupe::parallel
