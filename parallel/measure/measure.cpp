#include "parallel/measure/measure.h"

#include <fmt/format.h>

#include <algorithm>

#include "actors/worker/worker.h"
#include "collective/mesh.h"
#include "core/async/future_combinators.h"
#include "core/base/error.h"
#include "parallel/measure/measurer.h"
#include "rref/ref_table.h"

namespace troupe::parallel {
namespace {

using internal::parallel::MeasuredPlace;
using internal::parallel::Measurer;
using internal::parallel::WholePass;
using Measurers = std::vector<RRef<Measurer>>;

// Speeds that differ by less are taken as equal: that much comes and goes.
constexpr double kAlike = 1.15;

// Layers as a worker of speed 1 would take them, by the fastest worker: what holds others up now and then is
// in their pace. One by one they find in caches what a pass through all of them does not.
std::vector<LayerCost> at_speed_one(const std::vector<std::vector<LayerCost>>& all,
                                    const std::vector<WholePass>& passes, size_t held, double rows,
                                    std::vector<WorkerCost>& workers) {
  double mean = 0;
  const auto [least, most] = std::ranges::minmax_element(workers, {}, &WorkerCost::pace);
  const bool alike = most->pace < kAlike * least->pace;
  for (const WorkerCost& w : workers) mean += w.pace / static_cast<double>(workers.size());
  for (WorkerCost& w : workers) w.speed = w.pace > 0 && !alike ? mean / w.pace : 1;
  const auto fastest =
      static_cast<size_t>(std::ranges::max_element(workers, {}, &WorkerCost::speed) - workers.begin());
  std::vector<LayerCost> layers = all[fastest];
  double one_by_one = 0;
  for (size_t i = 0; i < held; ++i) one_by_one += layers[i].time(rows);
  const double together = one_by_one > 0 ? std::max(1.0, passes[fastest].seconds / one_by_one) : 1;
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerCost& l = layers[i];
    const double times = workers[fastest].speed * (i < held ? together : 1);
    l.adding *= times;
    for (RowTime* t : {&l.forward, &l.input, &l.weight, &l.backward}) t->fixed *= times, t->per_row *= times;
  }
  return layers;
}

// The first pair of workers of each class.
void measure_links(const Measurers& measurers, const std::vector<MeasuredPlace>& places,
                   const std::vector<WorkerCost>& workers, ModelProfile& out, const MeasureOptions& options,
                   const std::string& device) {
  for (size_t a = 0; a < places.size(); ++a)
    for (size_t b = a + 1; b < places.size(); ++b) {
      LinkCost& link = places[a].process == places[b].process ? out.process
                       : workers[a].host == workers[b].host   ? out.host
                                                              : out.hosts;
      if (link.rate <= 0)
        link = measurers[a]
                   .with_timeout(options.timeout)
                   .call<&Measurer::link>(measurers[b], device, options.repeats)
                   .get();
    }
}

// What workers have. Last, so that what code and libraries have is there, and nothing of the layers.
std::vector<MeasuredPlace> places_of(const Measurers& measurers, ModelProfile& out) {
  std::vector<Future<MeasuredPlace>> finding;
  for (const auto& m : measurers) finding.push_back(m.call<&Measurer::place>());
  const std::vector<MeasuredPlace> places = all(finding).get();
  out.cores = places[0].cores;
  for (size_t w = 0; w < places.size(); ++w) {
    out.cores = std::min(out.cores, places[w].cores);
    out.workers[w].memory = places[w].memory, out.workers[w].tensors = places[w].tensors;
  }
  return places;
}

}  // namespace

ModelProfile measure(const Here& here, const Value& model, const Tensor& sample,
                     const MeasureOptions& options) {
  if (options.repeats < 1)
    throw_invalid(fmt::format("[plan] {} repeats: expected at least 1", options.repeats));
  if (!sample.defined() || sample.dim() < 1 || sample.size(0) < 2)
    throw_invalid("[plan] a sample has at least 2 rows; got " +
                  (sample.defined() ? sample.summary() : std::string("undefined")));
  const std::string device = sample.device().str();
  const Tensor rows_there = sample.to(cpu);
  ModelProfile out;
  Measurers measurers;
  std::vector<Place> workers;
  for (const auto& m : here.table().worker().members().all()) {
    out.workers.push_back({.name = m.name, .host = m.host});
    workers.emplace_back(m.name);
    measurers.push_back(here.spawn<Measurer>(m.name));
  }
  const auto layers_on = [&](const RRef<Measurer>& m, int64_t repeats) {
    return m.with_timeout(options.timeout).call<&Measurer::layers>(model, rows_there, device, repeats);
  };
  // Workers of one process would count each other's bytes.
  const std::vector<LayerCost> alone = layers_on(measurers[0], options.repeats).get();
  std::vector<Future<std::vector<LayerCost>>> timing;
  for (const auto& m : measurers) timing.push_back(layers_on(m, options.repeats));
  out.batch = sample.size(0);
  const std::vector<std::vector<LayerCost>> timed = all(timing).get();
  const auto rows = static_cast<double>(out.batch);
  const int64_t held = internal::parallel::held_layers(alone, rows);
  std::vector<Future<WholePass>> passing;
  for (const auto& m : measurers)
    passing.push_back(
        m.with_timeout(options.timeout).call<&Measurer::whole_pass>(model, held, rows_there, device));
  const std::vector<WholePass> passes = all(passing).get();
  for (size_t w = 0; w < passes.size(); ++w) {
    out.workers[w].pace = passes[w].seconds, out.state = passes[w].state;
    out.optimizer += passes[w].optimizer / static_cast<double>(passes.size());
  }
  out.layers = at_speed_one(timed, passes, static_cast<size_t>(held), rows, out.workers);
  for (size_t i = 0; i < alone.size(); ++i) {
    out.layers[i].saved = alone[i].saved, out.layers[i].working = alone[i].working;
    out.layers[i].saved_divided = alone[i].saved_divided;
    const auto part = [&](double at) {
      return std::clamp(alone[i].time(at) / std::max(timed[0][i].time(at), 1e-12), 1e-3, 1.0);
    };
    out.layers[i].alone = part(rows), out.layers[i].alone_few = part(rows / 4);
  }
  for (const LayerCost& l : out.layers) out.cuts_layers = out.cuts_layers || l.sums > 0;
  const std::vector<MeasuredPlace> places = places_of(measurers, out);
  measure_links(measurers, places, out.workers, out, options, device);
  if (measurers.size() > 1) {
    const Group group = Mesh(here.table().worker(), {{"all", workers.size()}}, workers).all();
    std::vector<Future<internal::collective::Links>> tuning;
    for (const auto& m : measurers) tuning.push_back(m.call<&Measurer::sums>(group));
    out.sums = all(tuning).get()[0];
  }
  return out;
}

}  // namespace troupe::parallel
