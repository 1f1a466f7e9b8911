// What a plan says of a layout, beside what steps take and keep.
#pragma once
#include <functional>
#include <string>

#include "collective/mesh.h"
#include "core/tensor/tensor.h"
#include "core/value/value.h"
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
  /// Says which workers compute at 0.8 of the speed that they had when the profile was made, or less, a line
  /// for each, and what the plan would be now. Empty: there are none.
  std::string slower;
  /// Lines for people.
  std::string str() const;
};

/// A mesh and its options as a planned layout. `rows`: of a step.
PlannedLayout planned(const std::vector<MeshDim>& dims, const PipelineOptions& options,
                      const std::vector<size_t>& cuts, int64_t rows);

/// Runs `step` five times, and five times by the clock, and looks whether workers are as fast as they were.
/// `model`, `sample`: as measure() had them. `invalid` for a profile of other workers or of another model,
/// and for more cuts than it has layers.
PlanCheck check_plan(const Here& here, const ModelProfile& profile, const PlannedLayout& layout,
                     const Value& model, const Tensor& sample, const std::function<void()>& step);

}  // namespace troupe::parallel
