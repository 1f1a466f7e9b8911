// How to cut a model over workers, and why: a search over all layouts, judged by what was measured.
#pragma once
#include "parallel/plan/layout_plan.h"

namespace troupe::parallel {

struct PlanOptions {
  int64_t workers = 0;     ///< 0: those of the profile
  int64_t per_host = 0;    ///< of them on a host; 0: as in the profile
  int64_t batch = 0;       ///< rows of a step; 0: the sample's
  double memory = 0;       ///< bytes that a worker may have, what it had before among them; 0: any number
  bool parts = false;      ///< the model is made of parallel::Sharded parts: Shard::all is possible
  bool stages = true;      ///< the model can be cut into stages
  bool sequences = false;  ///< its sequences can be cut over ranks of "cp", by heads
  size_t shown = 10;       ///< layouts of the table
};

/// Cuts the workers into replicas (dp), stages (pp) and ranks (tp, cp, ep), with all schedules, numbers of
/// micro-batches, checkpoints and levels of Shard, and judges each by cost_of(). Rows go to replicas, and
/// layers to stages, by the speeds of workers. A function of its arguments.
///
/// `invalid` for no rows for each micro-batch, and for negative numbers.
LayoutPlan plan(const ModelProfile& profile, const PlanOptions& options = {});

/// One layout by the same measure, whether it fits or not. Where it has no cuts or rows, it gets those that
/// plan() would give it. `invalid` for one of other numbers of workers, stages or rows.
PlanRow judge(const ModelProfile& profile, const PlanOptions& options, PlannedLayout layout);
/// The same of a layout file. `invalid` for keys that say nothing of a model on a mesh, too.
PlanRow judge_file(const ModelProfile& profile, const PlanOptions& options, const std::string& path);

}  // namespace troupe::parallel
