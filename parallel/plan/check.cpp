#include "parallel/plan/check.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/async/future_combinators.h"
#include "core/base/clock.h"
#include "core/base/proportional.h"
#include "parallel/measure/measurer.h"
#include "parallel/plan/why_not.h"

namespace troupe::parallel {
namespace {

using internal::parallel::Measurer;

constexpr int kBefore = 2, kTimed = 5;

size_t size_along(const Mesh& mesh, const char* dim) {
  return std::ranges::find(mesh.dims(), dim, &MeshDim::name) == mesh.dims().end() ? 1 : mesh.size(dim);
}

std::string beside(double predicted, double measured, std::string (*text)(double)) {
  const double off = measured > 0 ? predicted / measured - 1 : 0;
  return fmt::format("predicted {}, measured {} ({:+.0f} %)", text(predicted), text(measured), off * 100);
}

}  // namespace

PlannedLayout planned(const Mesh& mesh, const PipelineOptions& options, const std::vector<size_t>& cuts,
                      int64_t rows) {
  PlannedLayout layout;
  for (const MeshDim& d : mesh.dims())
    if (d.name != "dp" && d.name != "pp" && d.name != "tp" && d.size > 1)
      throw_invalid("[plan] a plan knows the dimensions dp, pp and tp, and this mesh has " + d.name);
  layout.dp = static_cast<int64_t>(size_along(mesh, "dp"));
  layout.pp = static_cast<int64_t>(size_along(mesh, "pp"));
  layout.tp = static_cast<int64_t>(size_along(mesh, "tp"));
  layout.cuts = cuts;
  const auto replicas = static_cast<size_t>(layout.dp);
  layout.rows = internal::proportional(
      rows, options.rows.size() == replicas ? options.rows : std::vector<int64_t>(replicas, 1));
  layout.micro_batches = std::min<int64_t>(options.micro_batches, *std::ranges::min_element(layout.rows));
  layout.schedule = options.schedule, layout.checkpoint = options.checkpoint;
  layout.shard = options.shard, layout.gather = options.gather, layout.reduce = options.reduce;
  return layout;
}

std::string PlanCheck::str() const {
  return fmt::format("{}\n  a step: {}\n  tensors of {}: {}\n", layout,
                     beside(predicted_step, measured_step, readable_seconds), busiest,
                     beside(predicted_memory, measured_memory, bytes_text));
}

PlanCheck check_plan(const Here& here, const ModelProfile& profile, const PlannedLayout& layout,
                     const std::function<void()>& step) {
  const auto names = here.workers();
  if (!std::ranges::equal(names, profile.workers, {}, {}, &WorkerCost::name))
    throw_invalid(
        fmt::format("[plan] the profile is of {} workers, from {} on, and {} are here, from {} on: measure "
                    "on these",
                    profile.workers.size(), profile.workers.at(0).name, names.size(), names.at(0)));
  const PlannedWorkers workers(profile, 0, 0);
  const LayoutCost cost = cost_of(profile, workers, layout);
  std::vector<RRef<Measurer>> measurers;
  for (const std::string& name : names) measurers.push_back(here.spawn<Measurer>(name));
  const auto most_tensors = [&] {
    std::vector<Future<double>> asking;
    for (const auto& m : measurers) asking.push_back(m.call<&Measurer::most_tensors>());
    return all(asking).get();
  };
  std::vector<double> took;
  for (int k = 0; k < kBefore + kTimed; ++k) {
    if (k == kBefore) (void)most_tensors();
    const TimePoint start = Clock::system().now();
    step();
    if (k >= kBefore) took.push_back(std::chrono::duration<double>(Clock::system().now() - start).count());
  }
  std::ranges::sort(took);
  PlanCheck check{.layout = layout.str(), .predicted_step = cost.step, .measured_step = took[kTimed / 2]};
  check.predicted_memory = cost.memory - cost.before + profile.workers[cost.worker].tensors;
  check.busiest = workers.name(cost.worker);
  check.measured_memory = most_tensors().at(cost.worker);
  return check;
}

}  // namespace troupe::parallel
