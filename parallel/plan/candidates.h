// The layouts that a search looks at: all that the workers, the model and the options allow.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "parallel/plan/plan_options.h"
#include "parallel/plan/planned_layout.h"

namespace troupe::internal::parallel {

using troupe::parallel::ModelProfile;
using troupe::parallel::PlannedLayout;
using troupe::parallel::PlannedWorkers;
using troupe::parallel::PlanOptions;

/// Refers to its arguments.
class Candidates {
 public:
  using Each = std::function<void(PlannedLayout)>;
  /// `batch`: rows of a step.
  Candidates(const ModelProfile& profile, const PlanOptions& options, const PlannedWorkers& workers,
             int64_t batch);
  void for_all(const Each& f);
  /// Layers for stages by what they take; slower stages get fewer. Empty: there are fewer layers than stages.
  std::optional<std::vector<size_t>> cuts(const PlannedLayout& layout);
  /// Rows for replicas, of which slower ones get fewer.
  std::vector<int64_t> rows_of(const PlannedLayout& layout) const;

 private:
  void with_ranks(PlannedLayout layout, const Each& f);
  void with_schedules(PlannedLayout layout, const Each& f) const;
  void with_chunks(PlannedLayout layout, const Each& f);
  void with_memory(PlannedLayout layout, const Each& f) const;
  std::vector<size_t> balanced(const std::vector<double>& costs, const PlannedLayout& layout) const;

  const ModelProfile& profile_;
  const PlanOptions& options_;
  const PlannedWorkers& workers_;
  const int64_t batch_;
  int64_t most_heads_ = 1;
  int64_t experts_ = 0;  // such numbers of ranks divide those of every layer
  std::map<std::array<int64_t, 4>, std::optional<std::vector<size_t>>> cuts_;
};

}  // namespace troupe::internal::parallel
