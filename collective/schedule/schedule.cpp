#include "collective/schedule/schedule.h"

#include <algorithm>
#include <map>

#include "collective/schedule/block_steps.h"
#include "collective/schedule/host_steps.h"
#include "core/base/error.h"

namespace troupe::internal::collective {

std::string_view name(Way w) {
  static constexpr std::string_view names[kWayCount] = {"whole",   "direct", "ring",        "doubling",
                                                        "halving", "tree",   "hierarchical"};
  return names[static_cast<size_t>(w)];
}

bool offers(Collective c, Way w) {
  using enum Way;
  const auto among = [w](std::initializer_list<Way> ways) {
    return std::ranges::find(ways, w) != ways.end();
  };
  switch (c) {
    case Collective::all_reduce:
      return among({whole, direct, ring, doubling, halving, hierarchical});
    case Collective::reduce:
    case Collective::broadcast:
      return among({whole, direct, ring, tree, hierarchical});
    case Collective::reduce_scatter:
    case Collective::all_gather:
      return among({direct, ring, hierarchical});
    case Collective::barrier:
      return among({whole, doubling});
    default:
      return w == direct;
  }
}

bool is_one_tensor(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce || c == Collective::broadcast;
}

std::string ways_of(Collective c) {
  std::string all;
  for (int i = 0; i < kWayCount; ++i)
    if (const auto w = static_cast<Way>(i); offers(c, w))
      all += (all.empty() ? "" : ", ") + std::string(name(w));
  return all;
}

namespace {

BlockSteps by_hosts(const Problem& p, size_t r) {
  const HostPlaces places(p.hosts, p.ranks, p.has_root() ? p.root : SIZE_MAX);
  if (p.collective == Collective::all_reduce) return host_all_reduce(r, places);
  if (p.collective == Collective::reduce) return heard_by_all(r, p.ranks, host_reduce(r, places, p.root));
  if (p.collective == Collective::broadcast) return host_broadcast(r, places, p.root);
  if (p.collective == Collective::all_gather) return host_all_gather(r, p.ranks, places);
  return host_reduce_scatter(r, p.ranks, places);
}

BlockSteps block_steps(const Problem& p, Way way, size_t r) {
  const size_t n = p.ranks;
  if (way == Way::hierarchical) return by_hosts(p, r);
  using enum Way;
  switch (p.collective) {
    case Collective::all_reduce:
      if (way == whole) return everything_to_all(r, n);
      if (way == doubling) return doubling_steps(r, n);
      if (way == halving) return halving_steps(r, n);
      if (way == direct) return direct_sum(r, n) + direct_spread(r, n);
      return ring_sum(r, n) + ring_spread(r, n);
    case Collective::reduce:
      if (way == whole) return heard_by_all(r, n, to_root(r, n, p.root, 0, Take::add));
      if (way == tree) return heard_by_all(r, n, tree_sum(r, n, p.root));
      return (way == direct ? direct_sum(r, n) : ring_sum(r, n)) + to_root(r, n, p.root, r, Take::put);
    case Collective::broadcast:
      if (way == whole) return heard_by_all(r, n, from_root(r, n, p.root, false));
      if (way == tree) return heard_by_all(r, n, tree_spread(r, n, p.root));
      return heard_by_root(
          r, n, p.root,
          from_root(r, n, p.root, true) + (way == direct ? direct_spread(r, n) : ring_spread(r, n)));
    case Collective::reduce_scatter:
      return way == direct ? direct_sum(r, n) : ring_sum(r, n);
    case Collective::all_gather:
      return way == direct ? direct_spread(r, n) : ring_spread(r, n);
    case Collective::scatter:
      return from_root(r, n, p.root, true);
    case Collective::gather:
      return to_root(r, n, p.root, r, Take::put);
    case Collective::all_to_all:
      return exchange(r, n);
    case Collective::barrier:
      return way == whole ? everybody_to_all(r, n) : dissemination(r, n);
  }
  return {};
}

// Into how many blocks one tensor is divided; 0: the blocks are the problem's own.
size_t divided_into(const Problem& p, Way way) {
  if (p.counts.size() != 1 || !is_one_tensor(p.collective)) return 0;
  if (way == Way::direct || way == Way::ring) return p.ranks;
  if (way == Way::hierarchical) {
    const HostCounts on = host_counts(p.hosts, p.ranks);
    return on.least * on.hosts;
  }
  return way == Way::halving ? power_below(p.ranks) : 1;
}

// Where the blocks of one chunk begin and end.
class ChunkBlocks {
 public:
  ChunkBlocks(const Problem& p, Way way, size_t piece, size_t chunk)
      : problem_(p), parts_(divided_into(p, way)), piece_(piece), chunk_(chunk) {
    if (!parts_) {
      for (const size_t count : p.counts) starts_.push_back(starts_.back() + count);
      return;
    }
    const size_t count = p.counts[0], most = count / parts_ < piece ? count : piece * parts_;
    from_ = std::min(count, chunk * most);
    size_ = std::min(most, count - from_);
  }
  Range of(size_t first, size_t last) const {
    if (first == last) return {};
    if (parts_) return {cut(first), cut(last) - cut(first)};
    if (problem_.counts.empty()) return {};
    const Range block{starts_[first], problem_.counts[first]};
    const size_t at = chunk_ ? std::min(block.size, chunk_ * piece_) : 0;
    return {block.from + at, std::min(piece_, block.size - at)};
  }

 private:
  // Between large blocks a multiple of kAligned elements: then a block that is sent lies as a tensor does.
  size_t cut(size_t i) const {
    const size_t at = size_ / parts_ * i + size_ % parts_ * i / parts_;
    return from_ + (i < parts_ && size_ / parts_ >= kLarge ? at / kAligned * kAligned : at);
  }
  static constexpr size_t kAligned = 64, kLarge = 64 * kAligned;  // a hundredth or two more for some
  const Problem& problem_;
  size_t parts_, piece_, chunk_, from_ = 0, size_ = 0;
  std::vector<size_t> starts_{0};
};

void check_way(const Problem& p, Way way, size_t piece) {
  p.check();
  if (!offers(p.collective, way))
    throw_invalid("[" + std::string(name(p.collective)) + "] it is not done by " + std::string(name(way)) +
                  ": choose one of " + ways_of(p.collective));
  if (!piece)
    throw_invalid("[" + std::string(name(p.collective)) + "] a piece has one element at least, not 0");
}

}  // namespace

size_t chunks(const Problem& p, Way way, size_t piece) {
  check_way(p, way, piece);
  const auto of = [](size_t count, size_t most) { return count ? (count - 1) / most + 1 : 1; };
  if (const size_t parts = divided_into(p, way))
    return p.counts[0] / parts < piece ? 1 : of(p.counts[0], piece * parts);
  return p.counts.empty() ? 1 : of(std::ranges::max(p.counts), piece);
}

Schedule steps(const Problem& p, Way way, size_t rank, size_t piece, size_t chunk) {
  check_way(p, way, piece);
  if (rank >= p.ranks)
    throw_invalid("[" + std::string(name(p.collective)) + "] rank " + std::to_string(rank) +
                  " of a group of " + std::to_string(p.ranks) + ": give one below that");
  const ChunkBlocks blocks(p, way, piece, chunk);
  Schedule all;
  std::map<size_t, uint32_t> sent, received;
  for (const BlockStep& s : block_steps(p, way, rank)) {
    Step step;
    for (const BlockSend& x : s.sends)
      if (const Range range = blocks.of(x.first, x.last); range.size || !chunk)
        step.sends.push_back({x.to, range, sent[x.to]++});
    for (const BlockReceive& x : s.receives)
      if (const Range range = blocks.of(x.first, x.last); range.size || !chunk)
        step.receives.push_back({x.from, range, x.take, received[x.from]++});
    if (!step.sends.empty() || !step.receives.empty()) all.push_back(std::move(step));
  }
  return all;
}

bool completes_sums(const Problem& p, Way way, size_t rank, size_t from) {
  if (p.ranks == 2 || way == Way::whole || way == Way::direct) return true;
  return way == Way::hierarchical && (p.hosts.empty() || p.hosts.at(rank) != p.hosts.at(from));
}

std::set<size_t> peers(const Schedule& schedule) {
  std::set<size_t> all;
  for (const Step& s : schedule) {
    for (const Send& x : s.sends) all.insert(x.to);
    for (const Receive& x : s.receives) all.insert(x.from);
  }
  return all;
}

std::string table(const Problem& p, Way way, size_t piece) {
  const auto text = [](Range r) {
    return "[" + std::to_string(r.from) + ", " + std::to_string(r.end()) + ")";
  };
  const size_t count = chunks(p, way, piece);
  std::string all = std::string(name(p.collective)) + " by " + std::string(name(way)) + ", " +
                    std::to_string(p.ranks) + " ranks\n";
  for (size_t chunk = 0; chunk < count; ++chunk)
    for (size_t r = 0; r < p.ranks; ++r) {
      size_t i = 0;
      for (const Step& s : steps(p, way, r, piece, chunk)) {
        all += "r" + std::to_string(r) + (count > 1 ? " chunk " + std::to_string(chunk) : "") + " step " +
               std::to_string(i++) + ":";
        for (const Send& x : s.sends) all += " " + text(x.range) + "->r" + std::to_string(x.to);
        for (const Receive& x : s.receives)
          all += (x.take == Take::add ? " +" : " ") + text(x.range) + "<-r" + std::to_string(x.from);
        all += "\n";
      }
    }
  return all;
}

}  // namespace troupe::internal::collective
