// The formulas of what a way costs.
#include <fmt/format.h>

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

std::string text_of(const Links& links) {
  const auto one = [](double round, double rate) {
    return fmt::format("{:.3g} us and {:.3g} GB/s", round * 1e6, rate * 1e-9);
  };
  std::string all;
  if (links.far_rate > 0) all = "between hosts " + one(links.far_round, links.far_rate);
  if (links.near_rate > 0)
    all += (all.empty() ? "" : ", ") + ("within a host " + one(links.near_round, links.near_rate));
  return all.empty() ? "no links" : all;
}

namespace {

// Rounds that wait for a message from another host.
size_t far_rounds(Collective c, Way way, size_t rounds) {
  if (way != Way::hierarchical || rounds < 2) return rounds;
  return c == Collective::all_reduce || c == Collective::reduce || c == Collective::broadcast ? 2 : 1;
}

}  // namespace

double seconds_by(const Setting& s, Way way, const Links& links) {
  const auto bytes = static_cast<double>(s.bytes);
  const Cost c = cost(s.collective, way, s.ranks, bytes, s.on);
  const double far = leaves_host(s.collective, way, s.ranks, bytes, s.on),
               near = std::max(0.0, c.elements - far / static_cast<double>(s.on.most));
  const auto beside = static_cast<double>(std::max<size_t>(s.on.most, 2) - 1);
  const size_t far_ones = far_rounds(s.collective, way, c.rounds);
  // Half a round within a host goes into its messages.
  double time = static_cast<double>(far_ones) * links.far_round +
                static_cast<double>(c.rounds - far_ones) * links.near_round +
                static_cast<double>(c.messages) * links.near_round / (2 * beside);
  if (links.far_rate > 0) time += far / links.far_rate;
  if (links.near_rate > 0) time += near / links.near_rate;
  return time;
}

namespace {

// A host of so many of n ranks, which follow each other.
double leaves_one(Collective c, Way way, size_t here, size_t n, double all, size_t hosts) {
  const auto ranks = static_cast<double>(here), others = static_cast<double>(n - here);
  const double block = all / static_cast<double>(n), around = all - block,
               straight = ranks * others * block,  // each gives each of the others a block
      by_hosts = all * static_cast<double>(hosts - 1) / static_cast<double>(hosts);
  using enum Way;
  switch (c) {
    case Collective::all_reduce:
      if (way == whole) return ranks * others * all;
      if (way == doubling) return ranks * all * static_cast<double>(std::bit_width(hosts - 1));
      return 2 * (way == hierarchical ? by_hosts : way == Way::direct ? straight : around);
    case Collective::reduce:
      if (way == hierarchical || way == tree) return all;
      if (way == whole) return ranks * all;
      return (way == ring ? around : straight) + ranks * block;
    case Collective::broadcast:
      if (way == hierarchical) return 2 * by_hosts;
      if (way == tree) return all * static_cast<double>(hosts - 1);
      if (way == whole) return others * all;
      return others * block + (way == ring ? around : straight);
    case Collective::reduce_scatter:
      return way == hierarchical ? others * block : way == ring ? around : straight;
    case Collective::all_gather:
      if (way == hierarchical) return static_cast<double>(hosts - 1) * ranks * block;
      return way == ring ? around : straight;
    default:
      return straight;
  }
}

}  // namespace

double leaves_host(Collective c, Way way, size_t n, double all, const HostCounts& on) {
  if (on.hosts < 2) return 0;
  return std::max(leaves_one(c, way, on.least, n, all, on.hosts),
                  leaves_one(c, way, on.most, n, all, on.hosts));
}

}  // namespace troupe::internal::collective
