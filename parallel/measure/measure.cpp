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
using Measurers = std::vector<RRef<Measurer>>;

// Layers of all workers as one: the mean of their times, and how fast each is beside it.
std::vector<LayerCost> mean_of(const std::vector<std::vector<LayerCost>>& all, double rows,
                               std::vector<WorkerCost>& workers) {
  std::vector<LayerCost> mean = all[0];
  const auto count = static_cast<double>(all.size());
  const auto add = [&](RowTime& to, const RowTime& from) {
    to.fixed += from.fixed / count, to.per_row += from.per_row / count;
  };
  std::vector<double> took;
  for (LayerCost& l : mean) l.forward = l.input = l.weight = {}, l.time_divided = 0;
  for (const auto& layers : all) {
    double sum = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      const LayerCost& from = layers[i];
      add(mean[i].forward, from.forward), add(mean[i].input, from.input), add(mean[i].weight, from.weight);
      mean[i].time_divided += from.time_divided / count;
      sum += from.forward.of(rows) + from.input.of(rows) + from.weight.of(rows);
    }
    took.push_back(sum);
  }
  double all_took = 0;
  for (const double t : took) all_took += t / count;
  for (size_t w = 0; w < workers.size(); ++w)
    workers[w].speed = took[w] > 0 && all_took > 0 ? all_took / took[w] : 1;
  return mean;
}

// The first pair of workers of each class.
void measure_links(const Measurers& measurers, const std::vector<MeasuredPlace>& places,
                   const std::vector<WorkerCost>& workers, ModelProfile& out, const MeasureOptions& options) {
  for (size_t a = 0; a < places.size(); ++a)
    for (size_t b = a + 1; b < places.size(); ++b) {
      LinkCost& link = places[a].process == places[b].process ? out.process
                       : workers[a].host == workers[b].host   ? out.host
                                                              : out.hosts;
      if (link.rate <= 0)
        link = measurers[a]
                   .with_timeout(options.timeout)
                   .call<&Measurer::link>(measurers[b], options.repeats)
                   .get();
    }
}

}  // namespace

ModelProfile measure(const Here& here, const Value& model, const Tensor& sample,
                     const MeasureOptions& options) {
  if (options.repeats < 1)
    throw_invalid(fmt::format("[plan] {} repeats: expected at least 1", options.repeats));
  if (!sample.defined() || sample.dim() < 1 || sample.size(0) < 2 || sample.device() != cpu)
    throw_invalid("[plan] a sample has at least 2 rows, on the CPU; got " +
                  (sample.defined() ? sample.summary() : std::string("undefined")));
  ModelProfile out;
  Measurers measurers;
  std::vector<Place> workers;
  for (const auto& m : here.table().worker().members().all()) {
    out.workers.push_back({.name = m.name, .host = m.host});
    workers.emplace_back(m.name);
    measurers.push_back(here.spawn<Measurer>(m.name));
  }
  const auto layers_on = [&](const RRef<Measurer>& m, int64_t repeats) {
    return m.with_timeout(options.timeout).call<&Measurer::layers>(model, sample, repeats);
  };
  // Workers of one process would count each other's bytes.
  const std::vector<LayerCost> alone = layers_on(measurers[0], 1).get();
  std::vector<Future<std::vector<LayerCost>>> timing;
  for (const auto& m : measurers) timing.push_back(layers_on(m, options.repeats));
  out.batch = sample.size(0);
  out.layers = mean_of(all(timing).get(), static_cast<double>(out.batch), out.workers);
  for (size_t i = 0; i < alone.size(); ++i)
    out.layers[i].saved = alone[i].saved, out.layers[i].working = alone[i].working,
    out.layers[i].saved_divided = alone[i].saved_divided;
  for (const LayerCost& l : out.layers) out.cuts_layers = out.cuts_layers || l.sums > 0;
  std::vector<Future<std::pair<double, double>>> stepping;
  for (const auto& m : measurers) stepping.push_back(m.call<&Measurer::optimizer>(options.repeats));
  for (const auto& [seconds, state] : all(stepping).get())
    out.optimizer += seconds / static_cast<double>(measurers.size()), out.state = state;
  // Last, so that what code and libraries have is there, and nothing of the layers.
  std::vector<Future<MeasuredPlace>> finding;
  for (const auto& m : measurers) finding.push_back(m.call<&Measurer::place>());
  const std::vector<MeasuredPlace> places = all(finding).get();
  out.cores = places[0].cores;
  for (size_t w = 0; w < places.size(); ++w) {
    out.cores = std::min(out.cores, places[w].cores);
    out.workers[w].memory = places[w].memory, out.workers[w].tensors = places[w].tensors;
  }
  measure_links(measurers, places, out.workers, out, options);
  if (measurers.size() > 1) {
    const Group group = Mesh(here.table().worker(), {{"all", workers.size()}}, workers).all();
    std::vector<Future<internal::collective::Links>> tuning;
    for (const auto& m : measurers) tuning.push_back(m.call<&Measurer::sums>(group));
    out.sums = all(tuning).get()[0];
  }
  return out;
}

}  // namespace troupe::parallel
