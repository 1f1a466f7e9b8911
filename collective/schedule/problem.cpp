#include "collective/schedule/problem.h"

#include <numeric>

#include "core/base/error.h"

namespace troupe::internal::collective {

std::string_view name(Collective c) {
  static constexpr std::string_view names[kCollectiveCount] = {"all_reduce", "reduce",     "reduce_scatter",
                                                               "broadcast",  "scatter",    "gather",
                                                               "all_gather", "all_to_all", "barrier"};
  return names[static_cast<size_t>(c)];
}

namespace {

size_t counts_of(Collective c, size_t ranks) {
  switch (c) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast:
      return 1;
    case Collective::all_to_all:
      return ranks * ranks;
    case Collective::barrier:
      return 0;
    default:
      return ranks;
  }
}

void add_range(std::vector<Range>& all, Range r) {
  if (r.size) all.push_back(r);
}

}  // namespace

void Problem::check() const {
  const std::string who = "[" + std::string(name(collective)) + "] ";
  if (!ranks) throw_invalid(who + "a group has no ranks: it needs one member at least");
  if (root >= ranks)
    throw_invalid(who + "the root is rank " + std::to_string(root) + " of a group of " +
                  std::to_string(ranks) + ": give one below that");
  const size_t expected = counts_of(collective, ranks);
  if (counts.size() != expected)
    throw_invalid(who + std::to_string(counts.size()) + " sizes for a group of " + std::to_string(ranks) +
                  ", which needs " + std::to_string(expected));
  if (!hosts.empty() && (hosts.size() != ranks || !is_counted(hosts)))
    throw_invalid(who + "it has hosts of " + std::to_string(hosts.size()) + " ranks for a group of " +
                  std::to_string(ranks) + ": they are counted from 0 as they are met");
}

size_t Problem::elements() const { return std::accumulate(counts.begin(), counts.end(), size_t{0}); }

Range Problem::block(size_t i) const {
  return {std::accumulate(counts.begin(), counts.begin() + static_cast<ptrdiff_t>(i), size_t{0}), counts[i]};
}

std::vector<Range> Problem::brings(size_t rank) const {
  std::vector<Range> all;
  switch (collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::reduce_scatter:
      add_range(all, {0, elements()});
      break;
    case Collective::broadcast:
    case Collective::scatter:
      if (rank == root) add_range(all, {0, elements()});
      break;
    case Collective::gather:
    case Collective::all_gather:
      add_range(all, block(rank));
      break;
    case Collective::all_to_all:
      for (size_t k = 0; k < ranks; ++k) add_range(all, block(rank * ranks + k));
      break;
    case Collective::barrier:
      break;
  }
  return all;
}

std::vector<Range> Problem::gets(size_t rank) const {
  std::vector<Range> all;
  switch (collective) {
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::all_gather:
      add_range(all, {0, elements()});
      break;
    case Collective::reduce:
    case Collective::gather:
      if (rank == root) add_range(all, {0, elements()});
      break;
    case Collective::reduce_scatter:
    case Collective::scatter:
      add_range(all, block(rank));
      break;
    case Collective::all_to_all:
      for (size_t k = 0; k < ranks; ++k) add_range(all, block(k * ranks + rank));
      break;
    case Collective::barrier:
      break;
  }
  return all;
}

bool Problem::adds() const {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter;
}

bool Problem::has_root() const {
  return collective == Collective::reduce || collective == Collective::broadcast ||
         collective == Collective::scatter || collective == Collective::gather;
}

}  // namespace troupe::internal::collective
