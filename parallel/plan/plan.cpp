#include "parallel/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "parallel/plan/candidates.h"
#include "parallel/plan/why_not.h"

namespace troupe::parallel {
namespace {

class Search {
 public:
  Search(const ModelProfile& profile, const PlanOptions& options)
      : profile_(profile),
        options_(options),
        workers_(profile, options.workers, options.per_host),
        batch_(options.batch ? options.batch : profile.batch),
        candidates_(profile_, options_, workers_, batch_) {
    if (batch_ < 1) throw_invalid(fmt::format("[plan] a step of {} rows: expected at least 1", batch_));
    if (options.shown < 1) throw_invalid("[plan] a table of 0 layouts: expected at least 1");
    if (!(options.memory >= 0))
      throw_invalid(fmt::format("[plan] a memory of {} bytes: expected 0, for any, or more", options.memory));
  }

  LayoutPlan run() {
    plan_.memory_limit = options_.memory, plan_.batch = batch_;
    for (size_t w = 0; w < workers_.size(); ++w) plan_.workers.push_back(workers_.name(w));
    note_limits();
    // What may be quick comes first, so that bounds leave out more.
    std::vector<std::pair<double, PlannedLayout>> open;
    candidates_.for_all([&](PlannedLayout layout) {
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
    if (layout.cuts.empty() && layout.stages() > 1) {
      const auto at = candidates_.cuts(layout);
      if (!at)
        throw_invalid(fmt::format("[plan] the layout has {} stages, and the model {} layers", layout.stages(),
                                  profile_.layers.size()));
      layout.cuts = *at;
    }
    if (layout.rows.empty()) {
      layout.rows = candidates_.rows_of(layout);
      const int64_t fewest = *std::ranges::min_element(layout.rows) / layout.ep;
      layout.micro_batches = std::min(layout.micro_batches, std::max<int64_t>(fewest, 1));
    }
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
          "the model has no layers that ranks divide (transformer_encoder_layer, multihead_attention, where "
          "a program cuts them): it is planned over dp and pp alone");
    if (profile_.cuts_layers && !options_.sequences)
      plan_.notes.emplace_back("sequences are not cut (cp): --sequences says that the model can");
    if (!options_.parts)
      plan_.notes.emplace_back(
          "shard all needs a model of parallel::Sharded parts: --parts says that it has");
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
  internal::parallel::Candidates candidates_;
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
