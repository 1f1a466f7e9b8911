#include "collective/schedule/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "core/base/error.h"

namespace troupe::internal::collective {

std::string size_text(size_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.4g} KiB", static_cast<double>(bytes) / (1 << 10));
  return fmt::format("{} bytes", bytes);
}

namespace {

enum class Because : uint8_t {
  asked,
  one_message,
  straight,
  many,
  bytes,
  bytes_of_many,
  ring_rounds,
  two,
  hosts,
  measured
};
struct Reason {
  Way way;
  Because because;
};

bool is_small(const Setting& s) { return s.bytes <= (s.ranks > 2 ? kWholeBytes : kWholeBytesOfTwo); }

// Whether ranks that share a host may all be each other's peers, and one on each host.
bool may_go_by_hosts(const Setting& s) { return s.on.most <= kManyRanks && s.on.hosts <= kManyRanks; }

// Whether hosts that ranks share send clearly less of many bytes to each other so.
bool hosts_save(const Setting& s, Way otherwise) {
  if (s.on.hosts < 2 || s.on.most < 2 || is_small(s) || !may_go_by_hosts(s)) return false;
  if (!offers(s.collective, Way::hierarchical)) return false;
  return leaves_host(s.collective, Way::hierarchical, s.ranks, 1, s.on) <
         kSaves * leaves_host(s.collective, otherwise, s.ranks, 1, s.on);
}

// The fewest rounds of few bytes, or the fewest bytes of many; as if each rank had a host of its own.
Reason without_hosts(const Setting& s) {
  using enum Because;
  const size_t n = s.ranks;
  const bool many_ranks = n > kManyRanks, small = is_small(s);
  const Because size = many_ranks ? bytes_of_many : bytes;
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

// The ways that do not make many ranks each other's peers.
std::vector<Way> ways_that_may(const Setting& s) {
  std::vector<Way> all;
  for (int i = 0; i < kWayCount; ++i) {
    const auto w = static_cast<Way>(i);
    if (!offers(s.collective, w) || s.collective == Collective::barrier) continue;
    if (s.ranks > kManyRanks && (w == Way::whole || w == Way::direct)) continue;
    if (w != Way::hierarchical || (s.on.most > 1 && may_go_by_hosts(s))) all.push_back(w);
  }
  return all;
}

Reason reason_of(const Setting& s) {
  if (s.way) return {*s.way, Because::asked};
  if (s.links && s.on.hosts > 1) {
    const std::vector<Way> ways = ways_that_may(s);
    const auto time = [&](Way w) { return seconds_by(s, w, *s.links); };
    if (ways.size() > 1) return {*std::ranges::min_element(ways, {}, time), Because::measured};
  }
  const Reason otherwise = without_hosts(s);
  return hosts_save(s, otherwise.way) ? Reason{Way::hierarchical, Because::hosts} : otherwise;
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
    case Because::measured: {
      std::string all = "of links measured, ";
      for (const Way w : ways_that_may(s))
        all += fmt::format("{}{} {:.3g} ms", all.ends_with(", ") ? "" : ", ", name(w),
                           seconds_by(s, w, *s.links) * 1e3);
      return all + " (" + text_of(*s.links) + ")";
    }
    case Because::hosts:
      return size_text(s.bytes) + " go between hosts as seldom as they can";
  }
  return {};
}

// Bytes that go between hosts, where ranks share some.
std::string text_of_hosts(const Setting& s, Way way) {
  if (s.on.hosts < 2 || s.collective == Collective::barrier) return "";
  if (s.on.most < 2) return way == Way::direct ? fmt::format("; {} hosts share no memory", s.on.hosts) : "";
  const auto sent = [&](Way by) {
    return size_text(
        static_cast<size_t>(leaves_host(s.collective, by, s.ranks, static_cast<double>(s.bytes), s.on)));
  };
  const std::string ranks =
      s.on.least == s.on.most ? fmt::format("{}", s.on.most) : fmt::format("{} to {}", s.on.least, s.on.most);
  std::string all = fmt::format("; {} hosts of {} ranks", s.on.hosts, ranks);
  if (way == Way::hierarchical) {
    all += fmt::format(", of which the busiest sends {} to others", sent(way));
    if (const Way otherwise = without_hosts(s).way; otherwise != Way::tree && otherwise != Way::halving)
      all += fmt::format(", and {} by {}", sent(otherwise), name(otherwise));
  } else if (!offers(s.collective, Way::hierarchical)) {
    all += ", between which each block goes once as it is";
  } else if (!may_go_by_hosts(s)) {
    all += fmt::format(": hierarchical is for at most {} hosts, of at most {} ranks", kManyRanks, kManyRanks);
  } else if (!is_small(s) && !s.way) {
    all += ", of which none would send less";
  }
  return all;
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
  const bool by_hosts = choice.way == Way::hierarchical;
  const bool cut = by_hosts && is_one_tensor(s.collective) && s.on.least;
  const size_t block = cut                     ? s.bytes / (s.on.hosts * s.on.least)
                       : in_blocks || by_hosts ? s.bytes / s.ranks
                                               : s.bytes;
  choice.lends = (choice.way == Way::direct || by_hosts) && s.on.hosts == 1 && block >= kLentBytes;
  if (in_blocks || by_hosts)
    choice.piece_bytes = choice.lends ? kLentPiece : std::clamp(block / kWindow, kLeastPiece, kLargestPiece);
  return choice;
}

std::string why_chosen(const Setting& s) {
  const Choice choice = choose(s);
  const std::string way = fmt::format("{}: ", name(choice.way));
  if (s.ranks == 1) return way + "a single rank has nobody to send to";
  std::string all = way + text_of(reason_of(s).because, s);
  const Cost c = cost(s.collective, choice.way, s.ranks, static_cast<double>(s.bytes), s.on);
  if (choice.lends)
    all += "; all members are on one host, so messages say where the bytes lie, and have none";
  else if (choice.way != Way::hierarchical || s.on.least == s.on.most)
    all += fmt::format("; the busiest of {} ranks sends {} in {} round{}", s.ranks,
                       size_text(static_cast<size_t>(c.elements)), c.rounds, c.rounds == 1 ? "" : "s");
  return all + text_of_hosts(s, choice.way);
}

}  // namespace troupe::internal::collective
