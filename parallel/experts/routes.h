// The way of tokens to experts that ranks have, as numbers: whose rows go where, and which are dropped.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::internal::parallel {

/// Counts of choices: [rank][expert].
using Choices = std::vector<std::vector<int64_t>>;

/// How many of each rank's choices of each expert are kept, if no expert takes more than `capacity` (below 0:
/// as many as come): those of lower ranks come first.
Choices kept_of(const Choices& chosen, int64_t capacity);

/// The routes of one rank. Experts lie on the ranks one behind the other, `experts` of them on each.
struct Routes {
  /// The rank's choices that are kept, by number, in the order in which they are sent: by expert, and of one
  /// expert by number. `chosen`: the expert of each choice.
  std::vector<int64_t> order = {};
  Choices rows = {};  ///< that each rank sends to each: [from][to]
  /// Rows that come are sorted so, for those of one own expert to follow each other; and how many each has.
  std::vector<int64_t> by_expert = {}, of_expert = {};

  Routes(const std::vector<int64_t>& chosen, const Choices& kept, const std::vector<int64_t>& experts,
         size_t rank);
};

}  // namespace troupe::internal::parallel
