#include "parallel/pipeline/split.h"

#include <algorithm>
#include <limits>

#include "core/async/future_combinators.h"
#include "parallel/measure/timed_layer.h"
#include "parallel/pipeline/schedule/choose_policy.h"

namespace troupe::parallel {
std::vector<size_t> borders(size_t layers, const std::vector<size_t>& cuts) {
  std::vector<size_t> at{0};
  for (const size_t cut : cuts) {
    if (cut <= at.back() || cut >= layers)
      throw_invalid("[pipeline] a cut before layer " + std::to_string(cut) + " of " + std::to_string(layers) +
                    " leaves a stage without layers: cuts ascend, from 1 to " + std::to_string(layers - 1));
    at.push_back(cut);
  }
  if (layers == 0) throw_invalid("[pipeline] the model has no layers");
  at.push_back(layers);
  return at;
}

std::vector<Place> places_of_stages(const std::vector<Place>& workers, const PipelineOptions& options) {
  const auto count = static_cast<int>(workers.size());
  if (count == 0) throw_invalid("[pipeline] there are no workers for the stages");
  const StageMap map =
      options.schedule == "auto"
          ? StageMap::loop(count, options.chunks)
          : map_of(make_policy(options.schedule, count, options.micro_batches, options.chunks));
  std::vector<Place> places;
  for (int s = 0; s < map.stages(); ++s) places.push_back(workers[static_cast<size_t>(map.worker(s))]);
  return places;
}

std::vector<AnyRef> actors_of(const std::vector<Stage>& stages) {
  std::vector<AnyRef> out;
  for (const Stage& s : stages)
    if (std::find(out.begin(), out.end(), s.part.actor) == out.end()) out.push_back(s.part.actor);
  return out;
}

Future<void> load(const std::vector<Stage>& stages, const nn::Sequential& net,
                  const std::vector<size_t>& cuts) {
  const std::vector<size_t> at = borders(net.size(), cuts);
  if (at.size() != stages.size() + 1)
    throw_invalid("[pipeline] " + std::to_string(cuts.size()) + " cuts do not make " +
                  std::to_string(stages.size()) + " stages");
  std::vector<Future<void>> loaded;
  for (size_t s = 0; s < stages.size(); ++s)
    loaded.push_back(
        nn::load_remote_state_dict(stages[s].part.actor, net.slice(at[s], at[s + 1]).state_dict()));
  return all(loaded).then([](const std::vector<Unit>&) {});
}

std::vector<size_t> balance(const std::vector<double>& costs, int stages) {
  return balance(costs, std::vector<double>(static_cast<size_t>(std::max(stages, 0)), 1.0));
}

std::vector<size_t> balance(const std::vector<double>& costs, const std::vector<double>& speeds) {
  const size_t n = costs.size(), count = speeds.size();
  if (count < 1 || n < count)
    throw_invalid("[pipeline] " + std::to_string(count) + " stages of " + std::to_string(n) +
                  " layers: expected at least one stage, and a layer for each");
  std::vector<double> sum(n + 1);
  for (size_t i = 0; i < n; ++i) sum[i + 1] = sum[i] + costs[i];
  // most[k][i]: the least that the largest of k stages has, made of the first i layers; last_begin: where its
  // last stage begins.
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> most(count + 1, std::vector<double>(n + 1, kNever));
  std::vector<std::vector<size_t>> last_begin(count + 1, std::vector<size_t>(n + 1));
  most[0][0] = 0;
  for (size_t k = 1; k <= count; ++k)
    for (size_t i = k; i <= n; ++i)
      for (size_t begin = k - 1; begin < i; ++begin) {
        const double here = std::max(most[k - 1][begin], (sum[i] - sum[begin]) / speeds[k - 1]);
        if (here < most[k][i]) most[k][i] = here, last_begin[k][i] = begin;
      }
  std::vector<size_t> cuts(count - 1);
  for (size_t k = count, i = n; k > 1; --k) cuts[k - 2] = i = last_begin[k][i];
  return cuts;
}

std::vector<size_t> balance_by_size(nn::Sequential net, int stages) {
  std::vector<double> bytes;
  for (size_t i = 0; i < net.size(); ++i) {
    double sum = 0;
    for (const auto& [name, t] : net[i].state_dict()) sum += static_cast<double>(t.nbytes());
    bytes.push_back(sum);
  }
  return balance(bytes, stages);
}

std::vector<size_t> balance_by_time(nn::Sequential net, const Tensor& sample, int stages, int repeats) {
  if (repeats < 1) throw_invalid("[pipeline] " + std::to_string(repeats) + " repeats: expected at least 1");
  std::vector<double> times(net.size());
  Tensor x = sample;
  for (size_t i = 0; i < net.size(); ++i) {
    times[i] = std::numeric_limits<double>::infinity();
    Tensor y;
    for (int k = 0; k < repeats; ++k) {
      const auto took = internal::parallel::time_layer(net[i], x, internal::parallel::Backward::whole);
      times[i] = std::min(times[i], took.total());
      y = took.y;
    }
    x = y;
  }
  return balance(times, stages);
}

}  // namespace troupe::parallel
