// Why a layout was not taken, in words and numbers.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "parallel/plan/layout_plan.h"

namespace troupe::parallel {

struct BestOfKind {
  PlanRow row;
  bool fits = true;
};
using KindsOfLayouts = std::map<std::string, BestOfKind>;

/// "replicas alone", "stages and ranks, shard state"
std::string kind_of(const PlannedLayout& layout);
/// "compute 71 %, sums of gradients 20 %: ..."
std::string what_binds(const LayoutCost& cost);
/// The kinds but that of the best, the fastest first.
std::vector<NotTaken> why_not(const PlanRow& best, const KindsOfLayouts& kinds, double memory_limit);
/// The kinds that cannot be, by what the model and the workers are.
std::vector<NotTaken> impossible_kinds(const ModelProfile& profile, bool stages,
                                       const PlannedWorkers& workers, int64_t batch);
/// "12.3 MiB"
std::string bytes_text(double bytes);
/// "12.3 ms"
std::string readable_seconds(double seconds);

}  // namespace troupe::parallel
