// What a search over layouts found.
#pragma once
#include <string>
#include <vector>

#include "core/value/value.h"
#include "parallel/plan/layout_cost.h"

namespace troupe::parallel {

struct PlanRow {
  PlannedLayout layout;
  LayoutCost cost;
  /// The fields by their names.
  Value value() const;
};

/// A kind of layout that was not taken, and why.
struct NotTaken {
  std::string kind;  ///< "replicas alone"
  std::string why;   ///< "dp 4: 12.1 ms a step, 4.1 ms more: sums of gradients take 5.0 ms more"
};

struct LayoutPlan {
  std::vector<PlanRow> best;  ///< the fastest first; empty: nothing fits
  std::vector<NotTaken> not_taken;
  std::vector<std::string> notes;  ///< of what the model has not
  std::string binds;               ///< what the best one spends its time on
  PlanRow nearest;                 ///< if nothing fits: what is short of least
  double memory_limit = 0;
  int64_t candidates = 0, simulated = 0;
  int64_t batch = 0;
  std::vector<std::string> workers;
  Simulation step;  ///< of the best

  /// The table, what binds, and why not others.
  std::string str() const;
  /// A value for programs: {"best": [{"layout": ..., "step": ..., "memory": ...}], "binds": ..., "why_not":
  /// {...}, ...}, in seconds and bytes.
  Value value() const;
  /// The layout file of the best one, as read_layout() takes it. `invalid` if nothing fits.
  std::string layout_json() const;
};

}  // namespace troupe::parallel
