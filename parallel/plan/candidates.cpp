#include "parallel/plan/candidates.h"

#include <algorithm>
#include <numeric>

#include "core/base/proportional.h"
#include "parallel/pipeline/split.h"

namespace troupe::internal::parallel {
namespace {

using troupe::parallel::balance;
using troupe::parallel::Checkpoint;
using troupe::parallel::LayerCost;
using troupe::parallel::Per;
using troupe::parallel::Shard;

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) all.push_back(d);
  return all;
}

}  // namespace

Candidates::Candidates(const ModelProfile& profile, const PlanOptions& options, const PlannedWorkers& workers,
                       int64_t batch)
    : profile_(profile), options_(options), workers_(workers), batch_(batch) {
  for (const LayerCost& l : profile.layers) {
    most_heads_ = std::max(most_heads_, l.sums ? l.heads : 1);
    experts_ = std::gcd(experts_, l.experts);
  }
}

std::optional<std::vector<size_t>> Candidates::cuts(const PlannedLayout& layout) {
  const int64_t tp = layout.tp;
  const MeshDim along = layout.along_stages();
  if (static_cast<size_t>(layout.stages()) > profile_.layers.size()) return {};
  const auto [at, is_new] =
      cuts_.try_emplace({layout.pp, along.back ? -layout.chunks : layout.chunks, tp, layout.ranks()});
  if (is_new) {
    std::vector<double> costs;
    const auto rows = static_cast<double>(profile_.batch);
    for (const LayerCost& l : profile_.layers) {
      const double share = 1 - l.time_divided + l.time_divided / static_cast<double>(tp);
      costs.push_back(l.time(rows) * share);
    }
    at->second = balanced(costs, layout);
  }
  return at->second;
}

std::vector<int64_t> Candidates::rows_of(const PlannedLayout& layout) const {
  const int64_t dp = layout.dp, each = layout.pp * layout.ranks();
  std::vector<double> speeds;
  for (int64_t d = 0; d < dp; ++d) {
    double least = workers_.speed(static_cast<size_t>(d * each));
    for (int64_t k = 1; k < each; ++k)
      least = std::min(least, workers_.speed(static_cast<size_t>(d * each + k)));
    speeds.push_back(least);
  }
  auto rows = proportional(batch_, speeds);
  for (int64_t& r : rows)  // each has one at least
    if (r == 0 && batch_ >= dp) --*std::ranges::max_element(rows), r = 1;
  return rows;
}

void Candidates::for_all(const Each& f) {
  const auto count = static_cast<int64_t>(workers_.size());
  for (const int64_t tp : divisors(count)) {
    if (tp > 1 && (!profile_.cuts_layers || tp > most_heads_ || tp > workers_.most_on_a_host())) continue;
    for (const int64_t cp : divisors(count / tp)) {
      if (cp > 1 && (!profile_.cuts_layers || !options_.sequences || most_heads_ % (tp * cp) != 0)) continue;
      for (const int64_t ep : divisors(count / tp / cp)) {
        if (ep > 1 && (experts_ == 0 || experts_ % ep != 0)) continue;
        with_ranks({.ep = ep, .cp = cp, .tp = tp}, f);
      }
    }
  }
}

void Candidates::with_ranks(PlannedLayout layout, const Each& f) {
  const auto left = static_cast<int64_t>(workers_.size()) / layout.ranks();
  for (const int64_t pp : divisors(left)) {
    layout.pp = pp, layout.dp = left / pp;
    const auto at = pp == 1 || options_.stages ? cuts(layout) : std::nullopt;
    if (!at || layout.dp * layout.ep > batch_) continue;
    layout.cuts = *at, layout.rows = rows_of(layout);
    with_schedules(layout, f);
    if (pp > 1) with_chunks(layout, f);
  }
}

// An interleaved schedule goes round the workers with as many micro-batches as there are, or several times.
void Candidates::with_chunks(PlannedLayout layout, const Each& f) {
  const int64_t fewest = *std::ranges::min_element(layout.rows);
  layout.schedule = "interleaved";
  for (const int64_t chunks : {2, 4}) {
    layout.chunks = chunks;
    const auto at = cuts(layout);
    if (!at) return;
    layout.cuts = *at;
    for (int64_t m = layout.pp; m * layout.ep <= fewest && m <= 16 * layout.pp; m *= 2)
      layout.micro_batches = m, with_memory(layout, f);
  }
}

void Candidates::with_schedules(PlannedLayout layout, const Each& f) const {
  const int64_t fewest = *std::ranges::min_element(layout.rows);
  for (int64_t m = 1; m * layout.ep <= fewest; m *= 2) {
    layout.micro_batches = m;
    if (m > 16 * layout.pp) break;
    if (layout.pp == 1) {
      layout.schedule = "1f1b";
      with_memory(layout, f);
      continue;
    }
    for (const char* schedule : {"1f1b", "zb-h1", "zb-h2", "gpipe"}) {
      layout.schedule = schedule;
      with_memory(layout, f);
    }
  }
}

void Candidates::with_memory(PlannedLayout layout, const Each& f) const {
  for (const Shard shard : {Shard::none, Shard::state, Shard::gradients, Shard::all}) {
    if (shard != Shard::none && layout.dp == 1) break;
    if (shard == Shard::all && (!options_.parts || layout.cp * layout.ep > 1)) break;
    layout.shard = shard, layout.gather = layout.reduce = Per::use, layout.checkpoint = Checkpoint::never;
    f(layout);
    if (shard == Shard::all && layout.micro_batches > 1) {
      layout.gather = layout.reduce = Per::step;
      f(layout);
    }
    // Ranks of a stage wait for each other, which a checkpoint cannot run again.
    if (layout.ranks() > 1 || shard == Shard::all) continue;
    for (const Checkpoint c : {Checkpoint::except_last, Checkpoint::always}) {
      layout.checkpoint = c;
      if (c == Checkpoint::always || layout.micro_batches > 1) f(layout);
    }
  }
}

std::vector<size_t> Candidates::balanced(const std::vector<double>& costs,
                                         const PlannedLayout& layout) const {
  const int64_t pp = layout.pp, ranks = layout.ranks();
  std::vector<double> speeds;
  for (int64_t s = 0; s < pp; ++s) {
    double least = workers_.speed(static_cast<size_t>(s * ranks));
    for (size_t w = 0; w < workers_.size(); ++w)
      if (static_cast<int64_t>(w) / ranks % pp == s) least = std::min(least, workers_.speed(w));
    speeds.push_back(least);
  }
  std::vector<double> of_stages;
  const MeshDim along = layout.along_stages();
  for (size_t s = 0; s < along.size; ++s) of_stages.push_back(speeds[member_at(along, s)]);
  return balance(costs, of_stages);
}

}  // namespace troupe::internal::parallel
