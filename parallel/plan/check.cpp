#include "parallel/plan/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <string_view>

#include "core/async/future_combinators.h"
#include "core/base/clock.h"
#include "core/base/proportional.h"
#include "parallel/measure/measurer.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/read_profile_of.h"
#include "parallel/plan/why_not.h"

namespace troupe::parallel {
namespace {

using internal::parallel::Measurer;
using internal::parallel::WholePass;

constexpr int kBefore = 5, kTimed = 5;
constexpr double kSlower = 0.8;  // of the speed that the profile has

std::string beside(double predicted, double measured, std::string (*text)(double)) {
  const double off = measured > 0 ? predicted / measured - 1 : 0;
  return fmt::format("predicted {}, measured {} ({:+.0f} %)", text(predicted), text(measured), off * 100);
}

// What is slower than it was, and what that comes to.
std::string slower_workers(const ModelProfile& before, const std::vector<double>& paces,
                           const PlannedLayout& layout) {
  ModelProfile now = before;
  std::string text;
  for (size_t w = 0; w < paces.size(); ++w) {
    const double part = before.workers[w].pace / paces[w];
    if (before.workers[w].pace <= 0 || part > kSlower) continue;
    now.workers[w].speed *= part;
    text += fmt::format("  {} computes at {:.2f} of the speed that it had when it was measured\n",
                        before.workers[w].name, part);
  }
  if (text.empty()) return text;
  // A program that runs can be given other rows and cuts of the same mesh, in about the same memory.
  PlannedLayout by_speed = layout;
  by_speed.rows.clear(), by_speed.cuts.clear();
  PlanOptions options;
  options.batch = std::accumulate(layout.rows.begin(), layout.rows.end(), int64_t{0});
  const PlanRow anew = judge(now, options, by_speed);
  const double stays = cost_of(now, PlannedWorkers(now, 0, 0), layout).step;
  if (anew.cost.step < stays)
    text += fmt::format(
        "  while that lasts, rows {}{} would take {} a step, and this layout {}: measure, and plan anew\n",
        fmt::join(anew.layout.rows, ":"),
        anew.layout.cuts == layout.cuts ? "" : fmt::format(" and cuts {}", fmt::join(anew.layout.cuts, ", ")),
        readable_seconds(anew.cost.step), readable_seconds(stays));
  return text;
}

}  // namespace

PlannedLayout planned(const std::vector<MeshDim>& dims, const PipelineOptions& options,
                      const std::vector<size_t>& cuts, int64_t rows) {
  PlannedLayout layout;
  constexpr std::array<std::string_view, 5> kKnown{"dp", "pp", "ep", "cp", "tp"};
  for (const MeshDim& d : dims)
    if (d.size > 1 && std::ranges::find(kKnown, d.name) == kKnown.end())
      throw_invalid("[plan] a plan knows the dimensions dp, pp, ep, cp and tp, and this mesh has " + d.name);
  if (options.slices > 1)
    throw_invalid(fmt::format(
        "[plan] a plan knows no slices, and this layout has slices = {}: leave them out", options.slices));
  layout.dp = static_cast<int64_t>(size_along(dims, "dp"));
  layout.chunks = std::max(options.chunks, 1);
  layout.pp = static_cast<int64_t>(size_along(dims, "pp")) / layout.chunks;
  layout.ep = static_cast<int64_t>(size_along(dims, "ep"));
  layout.cp = static_cast<int64_t>(size_along(dims, "cp"));
  layout.tp = static_cast<int64_t>(size_along(dims, "tp"));
  layout.cuts = cuts;
  const auto replicas = static_cast<size_t>(layout.dp);
  if (rows < layout.dp)
    throw_invalid(fmt::format("[plan] a step of {} rows for {} replicas: give each of them a row at least",
                              rows, layout.dp));
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
                     beside(predicted_memory, measured_memory, bytes_text)) +
         slower;
}

PlanCheck check_plan(const Here& here, const ModelProfile& profile, const PlannedLayout& layout,
                     const Value& model, const Tensor& sample, const std::function<void()>& step) {
  const auto names = here.workers();
  if (!std::ranges::equal(names, profile.workers, {}, {}, &WorkerCost::name))
    throw_invalid(
        fmt::format("[plan] the profile is of {} workers, from {} on, and {} are here, from {} on: measure "
                    "on these",
                    profile.workers.size(), profile.workers.at(0).name, names.size(), names.at(0)));
  check_is_of(profile, model, sample, "the profile");
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
  // The profile has them of a sample of its own rows.
  const auto rows = static_cast<double>(sample.size(0)), batch = static_cast<double>(profile.batch);
  const int64_t held = internal::parallel::held_layers(profile.layers, batch);
  std::vector<Future<WholePass>> passing;
  for (const auto& m : measurers)
    passing.push_back(m.with_timeout(std::chrono::minutes(10))
                          .call<&Measurer::whole_pass>(model, held, sample.to(cpu), sample.device().str()));
  std::vector<double> paces;
  for (const WholePass& pass : all(passing).get()) paces.push_back(pass.seconds * batch / rows);
  check.slower = slower_workers(profile, paces, layout);
  return check;
}

}  // namespace troupe::parallel
