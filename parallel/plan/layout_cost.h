// What a step of a model takes in a layout, by formulas and by a simulated schedule.
#pragma once
#include <vector>

#include "parallel/pipeline/schedule/simulate.h"
#include "parallel/plan/planned_layout.h"

namespace troupe::parallel {

/// `invalid` for a layout that does not fit the layers or the workers.
LayoutCost cost_of(const ModelProfile& profile, const PlannedWorkers& workers, const PlannedLayout& layout);
/// `simulated`: becomes the step of the slowest replica.
LayoutCost cost_of(const ModelProfile& profile, const PlannedWorkers& workers, const PlannedLayout& layout,
                   Simulation& simulated);
/// Less than that the step cannot take, however it is scheduled. Quick.
double least_step(const ModelProfile& profile, const PlannedWorkers& workers, const PlannedLayout& layout);
/// The bytes of the busiest worker, as in cost_of(), but for micro-batches that are alive: `live` of each.
LayoutCost memory_of(const ModelProfile& profile, const PlannedWorkers& workers, const PlannedLayout& layout,
                     const std::vector<int>& live);

}  // namespace troupe::parallel
