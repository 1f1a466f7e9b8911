// What the workers of a pipeline tell of a step, and what it comes to together.
#pragma once
#include <tuple>
#include <vector>

#include "parallel/pipeline/schedule/plan.h"
#include "parallel/pipeline/skip_links.h"
#include "parallel/pipeline/step_report.h"

namespace troupe::parallel {

/// Something that a worker did: times in nanoseconds of its clock.
struct Done {
  int64_t work = 0, micro_batch = 0, stage = 0, begin = 0, end = 0;
};
/// Something that came from another stage: outputs and skips, or their gradients.
struct Came {
  bool forward = true;
  SkipLink to;
  int64_t micro_batch = 0, from = 0;  ///< from: a stage
  int64_t sent = 0, arrived = 0, bytes = 0;
};

struct RunnerReport {
  std::vector<Done> done;
  std::vector<Came> came;
  int64_t peak_live = 0;
  int64_t exposed = 0;         ///< nanoseconds of waiting for something that was on its way already
  std::vector<double> losses;  ///< by micro-batch, of a stage with a loss
  std::vector<Value> outputs;  ///< by micro-batch, of the last stage where nothing is recorded
};

/// How long, from `since` on, one of these was on its way and none had arrived. Their ways may overlap: that
/// time counts once. Pure.
int64_t waited_for(const std::vector<Came>& came, int64_t since);

/// Of all workers, in their order. Times count from the first begin.
StepReport join(const std::vector<RunnerReport>& parts, const Policy& policy);

}  // namespace troupe::parallel
