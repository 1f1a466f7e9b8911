// Schedules as data: which elements each rank sends to whom, and what it does with those that come.
#pragma once
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "collective/schedule/problem.h"
#include "collective/schedule/step.h"

namespace troupe::internal::collective {

/// How an operation is done. Sums have the same bits in all ways but `ring`: those of order_of_sum(). So has
/// `hierarchical` on one host; on several it adds the sums of hosts, in the order of their ranks that do it.
enum class Way : uint8_t {
  whole,     ///< one round: each sends all that it has to those that need it
  direct,    ///< each adds its block, which the others send to it, and sends the sum to those that need it
  ring,      ///< blocks go round; a rank has two peers, and the order of a sum depends on the block
  doubling,  ///< with partners at distances 1, 2, 4, ...
  halving,   ///< the same, of half as much each time, and back
  tree,      ///< from the root or to it, along a binomial tree
  hierarchical,  ///< within each host, between hosts, within each host
};
inline constexpr int kWayCount = 7;
std::string_view name(Way w);

/// Of one rank and one chunk.
using Schedule = std::vector<Step>;

/// Large operations go in chunks, each with steps of its own, so that several are on their way at once.
/// `piece`: elements of a block in one chunk; of a large block each chunk takes the next ones.
inline constexpr size_t kOnePiece = SIZE_MAX;

/// Whether an operation can be done that way.
bool offers(Collective c, Way w);
/// Whether its tensor is cut into blocks, rather than its blocks given.
bool is_one_tensor(Collective c);
/// The ways of an operation, in words for errors: "whole, direct, ring".
std::string ways_of(Collective c);
size_t chunks(const Problem& problem, Way way, size_t piece = kOnePiece);
/// What `rank` does for one chunk. `invalid` if the operation is not done that way, or the problem is none.
/// An empty range is sent in the first chunk only: by that the ranks hear of each other whatever the sizes.
/// No rank is done before it has heard, directly or not, of all; but for scatter, gather and all_to_all,
/// whose ranks have told each other their sizes before.
Schedule steps(const Problem& problem, Way way, size_t rank, size_t piece = kOnePiece, size_t chunk = 0);
/// Whether what `rank` adds of `from` completes sums: nothing is added to them later.
bool completes_sums(const Problem& problem, Way way, size_t rank, size_t from);
/// The ranks that a schedule sends to, or expects something from.
std::set<size_t> peers(const Schedule& schedule);
/// The steps of all ranks as text, a line for each step of a rank.
std::string table(const Problem& problem, Way way, size_t piece = kOnePiece);

/// The order of a sum, whatever the way: first ranks beyond the largest power of two are added to their
/// neighbours, then neighbours in pairs. `combine(i, j)` adds summand j to summand i, of n in the order of
/// ranks; the sum is in summand 0.
template <class F>
void order_of_sum(size_t n, F combine) {
  size_t power = 1;
  while (power * 2 <= n) power *= 2;
  const size_t folded = n - power;  // of the first 2 * folded ranks, each odd one stands for two
  const auto real = [&](size_t v) { return v < folded ? 2 * v : v + folded; };
  for (size_t v = 0; v < folded; ++v) combine(2 * v, 2 * v + 1);
  for (size_t d = 1; d < power; d *= 2)
    for (size_t v = 0; v + d < power; v += 2 * d) combine(real(v), real(v + d));
}

}  // namespace troupe::internal::collective
