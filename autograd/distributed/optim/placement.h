// How what an actor has of a parameter lies in the whole one.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe::optim {

/// A parameter may be cut by ranks, which have ranges along a dimension; by replicas, which divide the
/// elements that a rank has; or both.
struct Placement {
  struct Range {
    int64_t from = 0, size = 0;
    bool operator==(const Range&) const = default;
  };
  struct Run {
    int64_t from = 0, count = 0;
    bool operator==(const Run&) const = default;
  };
  Shape whole;
  int64_t dim = 0;
  std::vector<Range> ranges = {};  ///< along it, one behind the other; none: all
  /// It has these of the elements of the ranges, in one dimension; none: all.
  std::optional<Run> run = {};

  /// How rank `rank` of a group has it, whose sizes along `dim` are those: one range.
  static Placement cut(const Shape& whole, int64_t dim, const std::vector<int64_t>& sizes, size_t rank);
  /// The placement as numbers, for files and messages. The way back is `invalid`, naming `what`, if they are
  /// none of a placement.
  std::vector<int64_t> numbers() const;
  static Placement of_numbers(const std::vector<int64_t>& numbers, const std::string& what);

  bool is_all() const { return ranges.empty() && !run; }
  /// The shape of what the ranges hold.
  Shape local() const;
  /// The shape of what the actor has.
  Shape shape() const { return run ? Shape{run->count} : local(); }
  /// Calls f(place in the whole, place in what the actor has, elements) for what is contiguous in both.
  void for_each_run(const std::function<void(int64_t, int64_t, int64_t)>& f) const;
  /// A copy of what the actor has of that whole one. `invalid` if its shape is another.
  Tensor of(const Tensor& parameter) const;
  bool operator==(const Placement&) const = default;
};
/// Keys are the names of an actor's module.
using Placements = std::map<std::string, Placement>;

/// How a tensor of that shape lies in the whole: in a way that `placements` have of the parameter, or it is
/// all. `invalid`, beginning with `what`, if it is neither.
Placement fitted(const Placements& placements, const std::string& parameter, const Shape& shape,
                 const std::string& what);

}  // namespace troupe::optim
