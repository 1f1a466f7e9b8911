// The formulas of what a way costs.
#include <algorithm>
#include <bit>

#include "collective/schedule/block_steps.h"
#include "collective/schedule/choice.h"

namespace troupe::internal::collective {

namespace {

// Each host has as many of the n ranks as the others.
Cost cost_by_hosts(Collective c, size_t n, double all, size_t hosts) {
  const size_t on = n / hosts, beside = on - 1, others = hosts - 1, far = others > 0, near = beside > 0;
  const double columns = static_cast<double>(beside) * all / static_cast<double>(on),
               block = all / static_cast<double>(n), blocks = static_cast<double>(others) * block;
  switch (c) {
    case Collective::all_reduce:
      return {2 * (beside + others), 2 * (columns + blocks), 2 * (near + far)};
    case Collective::reduce: {
      const bool many = n > kManyRanks;
      const size_t up = many ? static_cast<size_t>(std::bit_width(n - 1)) : 0;
      return {many ? up + beside + others + 1 : n, columns + blocks + block, up + near + far + 1};
    }
    case Collective::broadcast:
      return {2 * beside + others * (on + 1), 2 * columns + blocks * static_cast<double>(on + 1),
              1 + near + far};
    default:
      return {n - 1, static_cast<double>(n - 1) * block, near + far};
  }
}

}  // namespace

Cost cost(Collective c, Way way, size_t n, double all, const HostCounts& on) {
  if (!n || !offers(c, way)) return {};
  if (n == 1) return {};
  if (way == Way::hierarchical) return cost_by_hosts(c, n, all, on.hosts);
  const size_t p = power_below(n), fold = n > p, up = static_cast<size_t>(std::bit_width(n - 1)),
               low = static_cast<size_t>(std::bit_width(p) - 1);
  const bool many = n > kManyRanks;
  const size_t met = many ? up : 0;  // rounds before, in which many ranks hear of each other
  const double others = static_cast<double>(n - 1), block = all / static_cast<double>(n);
  using enum Way;
  switch (c) {
    case Collective::all_reduce:
      if (way == whole) return {n - 1, others * all, 1};
      if (way == direct) return {2 * (n - 1), 2 * others * block, 2};
      if (way == ring) return {2 * (n - 1), 2 * others * block, 2 * (n - 1)};
      if (way == doubling) return {low + fold, static_cast<double>(low + fold) * all, low + 2 * fold};
      return {2 * low + fold,
              (2 * static_cast<double>(p - 1) / static_cast<double>(p) + static_cast<double>(fold)) * all,
              2 * low + 2 * fold};
    case Collective::reduce:
      if (way == whole) return {many ? up + 1 : n - 1, all, met + 1};
      if (way == tree) return {many ? up + 1 : n - 1, all, met + low + fold};
      return {n, all, way == direct ? 2 : n};
    case Collective::broadcast:
      if (way == whole) return {met + n - 1, others * all, met + 1};
      if (way == tree) return {many ? 2 * up : n - 1, static_cast<double>(up) * all, met + up};
      return {2 * (n - 1), 2 * others * block, way == direct ? 2 : n};
    case Collective::reduce_scatter:
    case Collective::all_gather:
      return {n - 1, others * block, way == direct ? 1 : n - 1};
    case Collective::scatter:
      return {n - 1, others * block, 1};
    case Collective::gather:
      return {1, block, 1};
    case Collective::all_to_all:
      return {n - 1, others * block / static_cast<double>(n), 1};
    case Collective::barrier:
      if (way == whole) return {n - 1, 0, 1};
      return {up, 0, up};
  }
  return {};
}

double leaves_host(Collective c, Way way, size_t n, double all, const HostCounts& on) {
  if (on.hosts < 2) return 0;
  const double block = all / static_cast<double>(n), hosts = static_cast<double>(on.hosts);
  double most = 0;
  for (const size_t here : {on.least, on.most}) {
    const auto ranks = static_cast<double>(here), others = static_cast<double>(n - here);
    const double direct = ranks * others * block;  // each gives each of the others a block
    const bool whole = way == Way::whole, by_hosts = way == Way::hierarchical, ring = way == Way::ring;
    const double around = all - block;  // ranks of a host follow each other
    double x = direct;
    if (c == Collective::all_reduce)
      x = by_hosts ? 2 * all * (hosts - 1) / hosts
          : whole  ? ranks * others * all
                   : 2 * (way == Way::direct ? x : around);
    else if (c == Collective::broadcast)
      x = by_hosts ? 2 * all * (hosts - 1) / hosts
          : whole  ? others * all
                   : others * block + (ring ? around : x);
    else if (c == Collective::reduce)
      x = by_hosts || whole ? (by_hosts ? 1 : ranks) * all : (ring ? around : x) + ranks * block;
    else if (c == Collective::reduce_scatter)
      x = by_hosts ? others * block : ring ? around : x;
    else if (c == Collective::all_gather)
      x = by_hosts ? (hosts - 1) * ranks * block : ring ? around : x;
    most = std::max(most, x);
  }
  return most;
}

}  // namespace troupe::internal::collective
