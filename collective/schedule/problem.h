// What the members of a group do together, without how: which elements each of them has before and after.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collective/schedule/hosts.h"

namespace troupe::internal::collective {

/// The operations of a group.
enum class Collective : uint8_t {
  all_reduce,      ///< everybody gets the sum of what all have
  reduce,          ///< the root gets it
  reduce_scatter,  ///< each gets its block of it
  broadcast,       ///< everybody gets what the root has
  scatter,         ///< each gets its block of what the root has
  gather,          ///< the root gets everybody's block
  all_gather,      ///< everybody gets everybody's block
  all_to_all,      ///< each gets one block of each
  barrier,         ///< nobody goes on before all have come
};
inline constexpr int kCollectiveCount = 9;
std::string_view name(Collective c);

/// Elements [from, from + size) of a problem.
struct Range {
  size_t from = 0, size = 0;
  size_t end() const { return from + size; }
  auto operator<=>(const Range&) const = default;
};

/// An operation with its sizes, the same for all ranks. Its elements have one numbering, whoever has them:
///
///   all_reduce, reduce, broadcast: the tensor; counts = {its elements}
///   reduce_scatter, scatter, gather, all_gather: the blocks of all ranks, one behind the other; counts[k] is
///   that of
///     rank k, which may be 0
///   all_to_all: for each sender the blocks for all receivers; counts[from * n + to]
///   barrier: none; counts = {}
struct Problem {
  Collective collective = Collective::barrier;
  size_t ranks = 1;
  size_t root = 0;  ///< 0 where there is none
  std::vector<size_t> counts = {};
  HostOfRank hosts = {};  ///< where the way depends on them (Way::hierarchical)
  bool operator==(const Problem&) const = default;

  /// `invalid`, with what was got and expected, if the parts do not fit together.
  void check() const;
  size_t elements() const;
  /// Of counts[i].
  Range block(size_t i) const;
  /// What a rank brings, and what it has at the end (of all ranges that are not empty, in order).
  std::vector<Range> brings(size_t rank) const;
  std::vector<Range> gets(size_t rank) const;
  /// Whether elements of several ranks are added.
  bool adds() const;
  /// Whether one rank has another part than the others.
  bool has_root() const;
};

}  // namespace troupe::internal::collective
