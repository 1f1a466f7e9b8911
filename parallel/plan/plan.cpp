#include "parallel/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include "core/base/error.h"
#include "core/base/proportional.h"
#include "parallel/pipeline/split.h"
#include "parallel/plan/why_not.h"

namespace troupe::parallel {
namespace {

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) all.push_back(d);
  return all;
}

class Search {
 public:
  Search(const ModelProfile& profile, const PlanOptions& options)
      : profile_(profile),
        options_(options),
        workers_(profile, options.workers, options.per_host),
        batch_(options.batch ? options.batch : profile.batch) {
    if (batch_ < 1) throw_invalid(fmt::format("[plan] a step of {} rows: expected at least 1", batch_));
    if (options.shown < 1) throw_invalid("[plan] a table of 0 layouts: expected at least 1");
    if (!(options.memory >= 0))
      throw_invalid(fmt::format("[plan] a memory of {} bytes: expected 0, for any, or more", options.memory));
    for (const LayerCost& l : profile.layers) most_heads_ = std::max(most_heads_, l.sums ? l.heads : 1);
    for (const LayerCost& l : profile.layers) experts_ = std::gcd(experts_, l.experts);
  }

  LayoutPlan run() {
    plan_.memory_limit = options_.memory, plan_.batch = batch_;
    for (size_t w = 0; w < workers_.size(); ++w) plan_.workers.push_back(workers_.name(w));
    note_limits();
    // What may be quick comes first, so that bounds leave out more.
    std::vector<std::pair<double, PlannedLayout>> open;
    for_all([&](PlannedLayout layout) {
      ++plan_.candidates;
      const double least = least_step(profile_, workers_, layout);
      open.emplace_back(least, std::move(layout));
    });
    std::ranges::stable_sort(open, {}, &std::pair<double, PlannedLayout>::first);
    for (const auto& [least, layout] : open) judge(least, layout);
    std::ranges::stable_sort(plan_.best, {}, [](const PlanRow& r) { return r.cost.step; });
    if (plan_.best.size() > options_.shown) plan_.best.resize(options_.shown);
    finish();
    return std::move(plan_);
  }

  PlanRow judged(PlannedLayout layout) {
    if (static_cast<size_t>(layout.workers()) != workers_.size())
      throw_invalid(fmt::format("[plan] the layout is of {} workers, and the plan of {}", layout.workers(),
                                workers_.size()));
    if (layout.cuts.empty() && layout.pp > 1) {
      const auto at = cuts(layout);
      if (!at)
        throw_invalid(fmt::format("[plan] the layout has {} stages, and the model {} layers", layout.pp,
                                  profile_.layers.size()));
      layout.cuts = *at;
    }
    if (layout.rows.empty()) layout.rows = rows_of(layout);
    const LayoutCost cost = cost_of(profile_, workers_, layout);
    return {std::move(layout), cost};
  }

 private:
  void note_limits() {
    bool several_hosts = false;
    for (size_t w = 1; w < workers_.size(); ++w)
      several_hosts = several_hosts || workers_.host(w) != workers_.host(0);
    if (several_hosts && (profile_.hosts.rate <= 0 || profile_.sums.far_rate <= 0))
      plan_.notes.emplace_back(
          "links between hosts were not measured, and those within a host stand for them: measure on two "
          "hosts, "
          "and give both profiles");
    if (!profile_.cuts_layers)
      plan_.notes.emplace_back(
          "the model has no layers that ranks divide (transformer_encoder_layer, multihead_attention): it is "
          "planned over dp and pp alone");
    if (profile_.cuts_layers && !options_.sequences)
      plan_.notes.emplace_back("sequences are not cut (cp): --sequences says that the model can");
    if (!options_.parts)
      plan_.notes.emplace_back(
          "shard all needs a model of parallel::Sharded parts: --parts says that it has");
  }

  // Layers for stages by what they take; slower stages get fewer. Empty: it cannot be.
  std::optional<std::vector<size_t>> cuts(const PlannedLayout& layout) {
    const int64_t pp = layout.pp, tp = layout.tp;
    if (static_cast<size_t>(pp) > profile_.layers.size()) return {};
    const auto [at, is_new] = cuts_.try_emplace({pp, tp, layout.ranks()});
    if (is_new) {
      std::vector<double> costs;
      const auto rows = static_cast<double>(profile_.batch);
      for (const LayerCost& l : profile_.layers) {
        const double share = 1 - l.time_divided + l.time_divided / static_cast<double>(tp);
        costs.push_back(l.time(rows) * share);
      }
      at->second = balanced(costs, pp, layout.ranks());
    }
    return at->second;
  }
  std::vector<size_t> balanced(const std::vector<double>& costs, int64_t pp, int64_t ranks) const {
    std::vector<double> speeds;
    for (int64_t s = 0; s < pp; ++s) {
      double least = workers_.speed(static_cast<size_t>(s * ranks));
      for (size_t w = 0; w < workers_.size(); ++w)
        if (static_cast<int64_t>(w) / ranks % pp == s) least = std::min(least, workers_.speed(w));
      speeds.push_back(least);
    }
    return balance(costs, speeds);
  }

  std::vector<int64_t> rows_of(const PlannedLayout& layout) const {
    const int64_t dp = layout.dp, each = layout.pp * layout.ranks();
    std::vector<double> speeds;
    for (int64_t d = 0; d < dp; ++d) {
      double least = workers_.speed(static_cast<size_t>(d * each));
      for (int64_t k = 1; k < each; ++k)
        least = std::min(least, workers_.speed(static_cast<size_t>(d * each + k)));
      speeds.push_back(least);
    }
    return internal::proportional(batch_, speeds);
  }

  void for_all(const std::function<void(PlannedLayout)>& f) {
    const auto count = static_cast<int64_t>(workers_.size());
    for (const int64_t tp : divisors(count)) {
      if (tp > 1 && (!profile_.cuts_layers || tp > most_heads_ || tp > workers_.most_on_a_host())) continue;
      for (const int64_t cp : divisors(count / tp)) {
        if (cp > 1 && (!profile_.cuts_layers || !options_.sequences || most_heads_ % (tp * cp) != 0))
          continue;
        for (const int64_t ep : divisors(count / tp / cp)) {
          if (ep > 1 && (experts_ == 0 || experts_ % ep != 0)) continue;
          with_ranks({.ep = ep, .cp = cp, .tp = tp}, f);
        }
      }
    }
  }
  void with_ranks(PlannedLayout layout, const std::function<void(PlannedLayout)>& f) {
    const auto left = static_cast<int64_t>(workers_.size()) / layout.ranks();
    for (const int64_t pp : divisors(left)) {
      layout.pp = pp, layout.dp = left / pp;
      const auto at = pp == 1 || options_.stages ? cuts(layout) : std::nullopt;
      if (!at || layout.dp * layout.ep > batch_) continue;
      layout.cuts = *at, layout.rows = rows_of(layout);
      with_schedules(layout, f);
    }
  }
  void with_schedules(PlannedLayout layout, const std::function<void(PlannedLayout)>& f) const {
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
  void with_memory(PlannedLayout layout, const std::function<void(PlannedLayout)>& f) const {
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

  void judge(double least, const PlannedLayout& layout) {
    const auto kind = kind_of(layout);
    const auto of_kind = kinds_.find(kind);
    const bool beaten = plan_.best.size() >= options_.shown && least >= worst_shown();
    if (beaten && of_kind != kinds_.end() && of_kind->second.fits && least >= of_kind->second.row.cost.step)
      return;
    const LayoutCost memory = memory_of(profile_, workers_, layout, live_of(layout));
    const bool fits = options_.memory <= 0 || memory.memory <= options_.memory;
    if (!fits) {
      PlanRow row{layout, memory};
      row.cost.step = least;
      keep_of_kind(kind, row, false);
      if (nearest_.cost.memory <= 0 || memory.memory < nearest_.cost.memory) nearest_ = row;
      return;
    }
    ++plan_.simulated;
    PlanRow row{layout, cost_of(profile_, workers_, layout)};
    keep_of_kind(kind, row, true);
    plan_.best.push_back(std::move(row));
    if (plan_.best.size() > 4 * options_.shown) {
      std::ranges::stable_sort(plan_.best, {}, [](const PlanRow& r) { return r.cost.step; });
      plan_.best.resize(options_.shown);
    }
  }
  double worst_shown() const {
    std::vector<double> steps;
    for (const PlanRow& r : plan_.best) steps.push_back(r.cost.step);
    const auto at = steps.begin() + static_cast<ptrdiff_t>(options_.shown - 1);
    std::ranges::nth_element(steps, at);
    return *at;
  }
  void keep_of_kind(const std::string& kind, const PlanRow& row, bool fits) {
    const auto [at, is_new] = kinds_.try_emplace(kind, BestOfKind{row, fits});
    BestOfKind& known = at->second;
    if (is_new) return;
    const bool better = fits != known.fits ? fits
                        : fits             ? row.cost.step < known.row.cost.step
                                           : row.cost.memory < known.row.cost.memory;
    if (better) known = {row, fits};
  }

  void finish() {
    plan_.nearest = nearest_;
    if (plan_.best.empty()) return;
    const PlanRow& best = plan_.best[0];
    (void)cost_of(profile_, workers_, best.layout, plan_.step);
    plan_.binds = what_binds(best.cost);
    plan_.not_taken = why_not(best, kinds_, options_.memory);
    for (auto& [kind, why] : impossible_kinds(profile_, options_.stages, workers_, batch_))
      plan_.not_taken.push_back({kind, why});
  }

  const ModelProfile& profile_;
  const PlanOptions& options_;
  const PlannedWorkers workers_;
  const int64_t batch_;
  int64_t most_heads_ = 1;
  int64_t experts_ = 0;  // such numbers of ranks divide those of every layer
  std::map<std::array<int64_t, 3>, std::optional<std::vector<size_t>>> cuts_;
  KindsOfLayouts kinds_;
  PlanRow nearest_;
  LayoutPlan plan_;
};

}  // namespace

LayoutPlan plan(const ModelProfile& profile, const PlanOptions& options) {
  return Search(profile, options).run();
}

PlanRow judge(const ModelProfile& profile, const PlanOptions& options, PlannedLayout layout) {
  return Search(profile, options).judged(std::move(layout));
}

}  // namespace troupe::parallel
