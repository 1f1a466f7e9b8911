#include "parallel/plan/cut_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "parallel/pipeline/split.h"

namespace troupe::internal::parallel {

using collective::Collective;
using troupe::parallel::Hop;
using troupe::parallel::LinkCost;

CutModel::CutModel(const ModelProfile& profile, const PlannedWorkers& workers, const PlannedLayout& layout)
    : profile_(profile),
      workers_(workers),
      layout_(layout),
      at_(troupe::parallel::borders(profile.layers.size(), layout.cuts)),
      along_(layout.along_stages()) {
  if (static_cast<int64_t>(at_.size()) != layout.stages() + 1)
    throw_invalid(fmt::format("[plan] {} cuts do not make {} stages", layout.cuts.size(), layout.stages()));
  if (static_cast<size_t>(layout.workers()) > workers.size())
    throw_invalid(fmt::format("[plan] {} has {} workers, and there are {}", layout.str(), layout.workers(),
                              workers.size()));
  if (static_cast<int64_t>(layout.rows.size()) != layout.dp)
    throw_invalid(fmt::format("[plan] {} has rows for {} replicas: expected {}", layout.str(),
                              layout.rows.size(), layout.dp));
  for (const int64_t rows : layout.rows)
    if (layout.micro_batches < 1 || rows < layout.micro_batches * layout.ep)
      throw_invalid(fmt::format(
          "[plan] {} has {} rows for {} micro-batches of {} ranks along ep: expected a row for each at least",
          layout.str(), rows, layout.micro_batches, layout.ep));
}

double CutModel::rows(int64_t replica) const {
  return static_cast<double>(layout_.rows.at(static_cast<size_t>(replica))) / micro_batches() /
         static_cast<double>(layout_.ep * layout_.cp);
}

double CutModel::part(const LayerCost& layer, double divided) const {
  if (layout_.tp == 1) return 1;
  const int64_t most = (layer.heads + layout_.tp - 1) / layout_.tp;
  return 1 - divided + divided * static_cast<double>(most) / static_cast<double>(layer.heads);
}

double CutModel::parameters_of(const LayerCost& layer) const {
  return dense_parameters_of(layer) + layer.expert_parameters / static_cast<double>(layout_.ep);
}

double CutModel::largest_of(const LayerCost& layer) const {
  return layer.parameters > 0 ? layer.largest * parameters_of(layer) / layer.parameters : 0;
}

double CutModel::dense_parameters_of(const LayerCost& layer) const {
  return (layer.parameters - layer.expert_parameters) * part(layer, layer.parameters_divided);
}

double CutModel::parameters(size_t stage) const {
  double sum = 0;
  for (size_t i = begin(stage); i < end(stage); ++i) sum += parameters_of(layer(i));
  return sum;
}

double CutModel::speed(int64_t replica, size_t stage) const {
  double least = workers_.speed(worker(replica, stage, 0));
  for (int64_t t = 1; t < layout_.ranks(); ++t)
    least = std::min(least, workers_.speed(worker(replica, stage, t)));
  return least;
}

Hop CutModel::hop(int64_t replica) const {
  Hop worst;
  for (size_t s = 0; s + 1 < stages(); ++s) {
    const double bytes = layer(end(s) - 1).output * rows(replica);
    const size_t from = worker(replica, s, 0), to = worker(replica, s + 1, 0);
    const bool far = workers_.host(from) != workers_.host(to);
    const LinkCost& link = this->link(from, to);
    if (link.rate <= 0 || from == to) continue;
    const Hop here(link.latency, bytes * (far ? static_cast<double>(layout_.ranks()) : 1) / link.rate);
    if (here.latency + here.busy > worst.latency + worst.busy) worst = here;
  }
  return worst;
}

// The nearest class that was measured.
const LinkCost& CutModel::link(size_t from, size_t to) const {
  const bool far = workers_.host(from) != workers_.host(to);
  return far && profile_.hosts.rate > 0 ? profile_.hosts
         : profile_.host.rate > 0       ? profile_.host
                                        : profile_.process;
}

double CutModel::driver() const {
  constexpr double kMessages = 5;
  double latency = 0;
  for (size_t w = 1; w < static_cast<size_t>(layout_.workers()); ++w)
    latency = std::max(latency, link(0, w).latency);
  return kMessages * latency;
}

double CutModel::over_ranks(double bytes, int64_t replica, size_t stage) const {
  return seconds(Collective::all_reduce, bytes, worker(replica, stage, 0), 1, layout_.tp,
                 layout_.ep * layout_.cp);
}

double CutModel::over_replicas(Collective c, double bytes, size_t stage) const {
  return seconds(c, bytes, worker(0, stage, 0), layout_.pp * layout_.ranks(), layout_.dp, layout_.ranks());
}

double CutModel::exchanges(const LayerCost& layer, int64_t replica, size_t stage) const {
  const double bytes = layer.output * rows(replica);  // of a rank
  const size_t first = worker(replica, stage, 0);
  double sum = 0;
  // Attention by heads: queries, keys and values to those who have the heads, and what comes of them back.
  if (layer.sums)
    sum += 4 * seconds(Collective::all_to_all, bytes * static_cast<double>(layout_.cp), first, layout_.tp,
                       layout_.cp, layout_.tp);
  // Each position to its experts, and back.
  if (layer.experts)
    sum += 2 * seconds(Collective::all_to_all, bytes * static_cast<double>(layer.chosen * layout_.ep), first,
                       layout_.cp * layout_.tp, layout_.ep, layout_.cp * layout_.tp);
  return sum;
}

double CutModel::over_copies(const LayerCost& layer, int64_t replica, size_t stage) const {
  const size_t first = worker(replica, stage, 0);
  return seconds(Collective::all_reduce, dense_parameters_of(layer), first, layout_.tp,
                 layout_.ep * layout_.cp, layout_.tp) +
         seconds(Collective::all_reduce, layer.expert_parameters / static_cast<double>(layout_.ep), first,
                 layout_.tp, layout_.cp, layout_.tp * layout_.ep);
}

bool CutModel::between_hosts(size_t stage) const {
  return setting(Collective::all_reduce, 1, worker(0, stage, 0), layout_.pp * layout_.ranks(), layout_.dp)
             .on.hosts > 1;
}

collective::Setting CutModel::setting(Collective c, double bytes, size_t first, int64_t stride,
                                      int64_t count) const {
  collective::HostOfRank hosts;
  for (int64_t k = 0; k < count; ++k)
    hosts.push_back(static_cast<uint32_t>(workers_.host(first + static_cast<size_t>(k * stride))));
  const auto ranks = static_cast<size_t>(count);
  return {c, ranks, static_cast<size_t>(bytes), collective::host_counts(collective::counted(hosts), ranks)};
}

double CutModel::seconds(Collective c, double bytes, size_t first, int64_t stride, int64_t count,
                         int64_t at_once) const {
  if (count < 2 || bytes <= 0) return 0;
  const collective::Setting s = setting(c, bytes, first, stride, count);
  const auto way = collective::choose(s).way;
  const double time = collective::seconds_by(s, way, profile_.sums);
  if (profile_.sums.far_rate <= 0) return time;
  const double far = collective::leaves_host(c, way, s.ranks, bytes, s.on);
  return time + far / profile_.sums.far_rate * static_cast<double>(at_once - 1);
}

}  // namespace troupe::internal::parallel
