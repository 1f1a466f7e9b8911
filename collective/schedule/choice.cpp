#include "collective/schedule/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "collective/schedule/block_steps.h"
#include "core/base/error.h"

namespace troupe::internal::collective {

Cost cost(Collective c, Way way, size_t n, double all) {
  if (!n || !offers(c, way)) return {};
  if (n == 1) return {};
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

std::string size_text(size_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.4g} KiB", static_cast<double>(bytes) / (1 << 10));
  return fmt::format("{} bytes", bytes);
}

namespace {

enum class Because : uint8_t { asked, one_message, straight, many, bytes, bytes_of_many, ring_rounds, two };
struct Reason {
  Way way;
  Because because;
};

bool is_small(const Setting& s) { return s.bytes <= (s.ranks > 2 ? kWholeBytes : kWholeBytesOfTwo); }

// The fewest rounds of few bytes, or the fewest bytes of many.
Reason reason_of(const Setting& s) {
  using enum Because;
  const size_t n = s.ranks;
  const bool many_ranks = n > kManyRanks, small = is_small(s);
  const Because size = many_ranks ? bytes_of_many : bytes;
  if (s.way) return {*s.way, asked};
  switch (s.collective) {
    case Collective::barrier:
      return {Way::doubling, one_message};
    case Collective::scatter:
    case Collective::gather:
    case Collective::all_to_all:
      return {Way::direct, straight};
    case Collective::reduce_scatter:
    case Collective::all_gather:
      return many_ranks ? Reason{Way::ring, many} : Reason{Way::direct, straight};
    case Collective::all_reduce:
      if (!many_ranks) return {small ? Way::whole : Way::direct, bytes};
      if (small) return {Way::doubling, size};
      if (std::has_single_bit(n) && s.bytes <= kHalvingBytes) return {Way::halving, ring_rounds};
      return {Way::ring, size};
    case Collective::reduce:
      if (n == 2) return {Way::whole, two};
      if (small) return {many_ranks ? Way::tree : Way::whole, size};
      return {many_ranks ? Way::ring : Way::direct, size};
    case Collective::broadcast:
      if (n == 2) return {Way::whole, two};
      if (small) return {Way::tree, bytes};
      return {many_ranks ? Way::ring : Way::direct, size};
  }
  return {};
}

std::string text_of(Because because, const Setting& s) {
  const std::string of_many =
      fmt::format("{} ranks are more than the {} that may all be each other's peers", s.ranks, kManyRanks);
  const std::string size = size_text(s.bytes) + (is_small(s) ? " are few bytes, so few rounds count"
                                                             : " are many bytes, so they go in blocks");
  switch (because) {
    case Because::asked:
      return "it was asked for";
    case Because::one_message:
      return "nobody waits for more than a message in each round";
    case Because::straight:
      return "each block goes straight to where it is needed";
    case Because::many:
      return of_many;
    case Because::bytes:
      return size;
    case Because::bytes_of_many:
      return size + "; " + of_many;
    case Because::ring_rounds:
      return fmt::format("{} are at most {}, where the rounds of a ring take longer; {}", size_text(s.bytes),
                         size_text(kHalvingBytes), of_many);
    case Because::two:
      return "one sends to the other";
  }
  return {};
}

}  // namespace

Way way_to_meet(size_t ranks) { return ranks > kManyRanks ? Way::doubling : Way::whole; }

Choice choose(const Setting& s) {
  if (!s.ranks)
    throw_invalid(fmt::format("[{}] a group has no ranks: it needs one member at least", name(s.collective)));
  if (s.way && !offers(s.collective, *s.way))
    throw_invalid(fmt::format("[{}] it is not done by {}: choose one of {}", name(s.collective), name(*s.way),
                              ways_of(s.collective)));
  Choice choice{.way = reason_of(s).way};
  if (s.ranks == 1) return choice;
  const bool in_blocks = choice.way == Way::direct || choice.way == Way::ring;
  const size_t block = in_blocks ? s.bytes / s.ranks : s.bytes;
  choice.lends = choice.way == Way::direct && s.hosts == 1 && block >= kLentBytes;
  if (in_blocks)
    choice.piece_bytes = choice.lends ? kLentPiece : std::clamp(block / kWindow, kLeastPiece, kLargestPiece);
  return choice;
}

std::string why_chosen(const Setting& s) {
  const Choice choice = choose(s);
  const std::string way = fmt::format("{}: ", name(choice.way));
  if (s.ranks == 1) return way + "a single rank has nobody to send to";
  std::string all = way + text_of(reason_of(s).because, s);
  const Cost c = cost(s.collective, choice.way, s.ranks, static_cast<double>(s.bytes));
  all += choice.lends
             ? "; all members are on one host, so messages say where the bytes lie, and have none"
             : fmt::format("; the busiest of {} ranks sends {} in {} round{}", s.ranks,
                           size_text(static_cast<size_t>(c.elements)), c.rounds, c.rounds == 1 ? "" : "s");
  if (s.hosts > 1 && choice.way == Way::direct) all += fmt::format("; {} hosts share no memory", s.hosts);
  return all;
}

}  // namespace troupe::internal::collective
