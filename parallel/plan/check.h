// What a plan says of a layout, beside what steps take and keep.
#pragma once
#include <functional>
#include <string>

#include "collective/mesh.h"
#include "parallel/plan/layout_cost.h"
#include "rref/here.h"

namespace troupe::parallel {

/// Steps that ran, beside the plan. Seconds, bytes.
struct PlanCheck {
  std::string layout;
  double predicted_step = 0, measured_step = 0;  ///< the middle one of five
  /// Tensors have so many at most, on the worker that should have most. Its process keeps more: its program
  /// and libraries, and for some seconds what was freed.
  double predicted_memory = 0, measured_memory = 0;
  std::string busiest;  ///< that worker
  /// Two lines for people.
  std::string str() const;
};

/// A mesh and its options as a planned layout. `rows`: of a step.
PlannedLayout planned(const Mesh& mesh, const PipelineOptions& options, const std::vector<size_t>& cuts,
                      int64_t rows);

/// Runs `step` two times, and five times by the clock. `invalid` for a
/// profile of other workers, or of fewer layers than the cuts have.
PlanCheck check_plan(const Here& here, const ModelProfile& profile, const PlannedLayout& layout,
                     const std::function<void()>& step);

}  // namespace troupe::parallel
