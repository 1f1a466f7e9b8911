// How to cut a model over workers, and why: a search over all layouts, judged by what was measured.
#pragma once
#include "parallel/plan/layout_plan.h"
#include "parallel/plan/plan_options.h"

namespace troupe::parallel {

/// Cuts the workers into replicas (dp), stages (pp, also 2 or 4 of a worker) and ranks (tp, cp, ep), with all
/// schedules, numbers of micro-batches, checkpoints and levels of Shard, and judges each by cost_of(). Rows
/// go to replicas, and layers to stages, by the speeds of workers. A function of its arguments.
///
/// `invalid` for no rows for each micro-batch, and for negative numbers.
LayoutPlan plan(const ModelProfile& profile, const PlanOptions& options = {});

/// One layout by the same measure, whether it fits or not. Where it has no cuts or rows, it gets those that
/// plan() would give it. `invalid` for one of other numbers of workers, stages or rows.
PlanRow judge(const ModelProfile& profile, const PlanOptions& options, PlannedLayout layout);
/// Judges a layout file. `invalid` for keys that say nothing of a model on a mesh, too.
PlanRow judge_file(const ModelProfile& profile, const PlanOptions& options, const std::string& path);

}  // namespace troupe::parallel
