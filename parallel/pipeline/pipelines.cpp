#include "parallel/pipeline/pipelines.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "actors/worker/worker.h"
#include "core/async/future_combinators.h"
#include "core/base/proportional.h"
#include "core/value/owned_number.h"
#include "parallel/data/replica.h"
#include "parallel/pipeline/micro_batch.h"
#include "parallel/pipeline/schedule/choose_policy.h"
#include "rref/ref_table.h"

namespace troupe::parallel {
namespace {

bool has(const MeshPoints& points, const std::string& dim) {
  return std::ranges::find(points.dims(), dim, &MeshDim::name) != points.dims().end();
}

void check_turns(const MeshPoints& points, const std::string& stages) {
  for (const MeshDim& d : points.dims()) {
    if (!d.turns || d.size % d.turns)
      throw_invalid(fmt::format(
          "[pipelines] dimension {} has size {} in {} turns: give a size that is a multiple of them", d.name,
          d.size, d.turns));
    if (d.turns > 1 && d.name != stages)
      throw_invalid(
          fmt::format("[pipelines] dimension {} has {} turns, and only stages, along {}, may have some",
                      d.name, d.turns, stages));
  }
}

void check_chunks(const MeshDim& stages, const PipelineOptions& options) {
  const int chunks = std::max(options.chunks, 1);
  const size_t workers = stages.size / stages.turns;
  if (static_cast<size_t>(chunks) != stages.turns)
    throw_invalid(fmt::format(
        "[pipelines] {} chunks, and each worker of the mesh has {} of its {} stages: make the mesh with the "
        "dimension {{\"{}\", {}, {}}}, or with \"chunks\" of a layout file",
        chunks, stages.turns, stages.size, stages.name, workers * static_cast<size_t>(chunks), chunks));
  if (chunks == 1) return;
  const StageMap map =
      map_of(make_policy(options.schedule, static_cast<int>(workers), options.micro_batches, chunks));
  for (size_t s = 0; s < stages.size; ++s)
    if (static_cast<size_t>(map.worker(static_cast<int>(s))) != member_at(stages, s))
      throw_invalid(fmt::format(
          "[pipelines] {} has stage {} on worker {}, and the mesh has it on worker {} along {}: {}",
          options.schedule.find(':') == std::string::npos ? "\"" + options.schedule + "\"" : "the table", s,
          map.worker(static_cast<int>(s)), member_at(stages, s), stages.name,
          map.is_loop() ? "give that dimension no turns back"
          : goes_back(options.schedule)
              ? fmt::format(
                    "give it the dimension {{\"{}\", {}, 2, true}}, or a layout file its \"schedule\"",
                    stages.name, stages.size)
              : "use \"interleaved\", \"looped-bfs\", \"zb-v\" or \"dualpipe-v\""));
}

// The tensors that a stage sent to stages of other workers.
int64_t sent_to_stages(const StepReport& step, size_t stage) {
  int64_t bytes = 0;
  for (const StepReport::Message& m : step.messages)
    if (static_cast<size_t>(m.from) == stage && step.map.worker(m.from) != step.map.worker(m.to))
      bytes += m.bytes;
  return bytes;
}

}  // namespace

void Pipelines::check(const MeshPoints& points, const PipelineOptions& options, const PipelinesDims& dims) {
  const MeshPoints pipelines = points.without(dims.stages);
  const size_t replicas = has(pipelines, dims.replicas) ? pipelines.size(dims.replicas) : 1;
  const bool ranks_meet = pipelines.size() > replicas || (replicas > 1 && options.shard == Shard::all);
  if (!options.replicas.empty())
    throw_invalid("[pipelines] the replicas of stages follow from the mesh: leave out the option");
  if (options.schedule == "auto")
    throw_invalid(
        "[pipelines] \"auto\" chooses by the times of one pipeline, and all need the same schedule: name "
        "one, such as \"1f1b\"");
  check_turns(points, dims.stages);
  check_chunks(points.dims()[points.index(dims.stages)], options);
  if (!options.rows.empty() && options.rows.size() != replicas)
    throw_invalid(fmt::format("[pipelines] \"rows\" has {} numbers for {} replicas: give one for each",
                              options.rows.size(), replicas));
  for (const int64_t rows : options.rows)
    if (rows < 1) throw_invalid(fmt::format("[pipelines] \"rows\" has a {}: expected at least 1", rows));
  if (ranks_meet && options.checkpoint != Checkpoint::never)
    throw_invalid(
        "[pipelines] the ranks of a stage wait for each other in its forward pass, which a checkpoint cannot "
        "run again: use Checkpoint::never, or checkpoint() within the stage");
}

Pipelines::Pipelines(const Here& here, MeshPoints points, const std::vector<AnyRef>& actors,
                     const Stage& method, PipelineOptions options, PipelinesDims dims,
                     std::shared_ptr<MeshActors> model)
    : here_(here),
      method_(method),
      options_(std::move(options)),
      actors_(actors),
      model_(std::move(model)),
      stages_(dims.stages) {
  points.check_all(actors.size());
  check(points, options_, dims);
  if (has(points, dims.replicas)) dim_ = dims.replicas;
  at_ = arranged(std::move(points));
  has_replicas_ = at_.replicas > 1;
  has_parts_ = has_replicas_ && options_.shard == Shard::all;
  pipelines_ = make(actors_, at_, false);
  note_runners();
}

Pipelines::~Pipelines() = default;

Pipelines::Arrangement Pipelines::arranged(MeshPoints points) const {
  Arrangement at{.all = points, .points = points.without(stages_), .replica_of = {}};
  if (!dim_.empty()) at.replicas = at.points.size(dim_);
  for (size_t i = 0; i < at.points.size(); ++i)
    at.replica_of.push_back(dim_.empty() ? 0 : at.points.coordinate(i, dim_));
  return at;
}

void Pipelines::note_runners() {
  for (const Pipeline& p : pipelines_)
    runners_[p.stages_.front().part.actor.handle()->path()] = p.paths_of_runners();
}

Pipelines::Pipes Pipelines::make(const std::vector<AnyRef>& actors, const Arrangement& at, bool heals) const {
  const size_t stages = at.all.size(stages_), count = at.points.size();
  internal::actors::Worker& worker = here_.table().worker();
  internal::parallel::Joint joint{.heals = heals};
  if (count > 1) joint.number = internal::owned_number(worker.id(), worker.next_number());

  // Points without the stages' dimension, to those with it.
  std::vector<std::vector<AnyRef>> of(count);
  for (size_t p = 0, next = 0; p < actors.size(); ++p) {
    if (at.all.coordinate(p, stages_) > 0) continue;
    for (size_t s = 0; s < stages; ++s) of[next].push_back(actors[p + s * at.all.stride(stages_)]);
    ++next;
  }
  Pipes pipelines;
  for (size_t i = 0; i < count; ++i) {
    std::vector<Stage> parts(stages, method_);
    PipelineOptions own = options_;
    for (size_t s = 0; s < stages; ++s) {
      parts[s].part.actor = of[i][s];
      if (s + 1 < stages) parts[s].part.loss.clear();
      if (at.replicas <= 1) continue;
      std::vector<AnyRef> copies;
      for (size_t r = 0; r < at.replicas; ++r)
        copies.push_back(of[i - at.replica_of[i] * at.points.stride(dim_) + r * at.points.stride(dim_)][s]);
      own.replicas.emplace_back(copies, fmt::format("pipelines {}", joint.number));
    }
    if (heals) joint.paths = runners_.at(of[i][0].handle()->path());
    pipelines.emplace_back(here_, std::move(parts), std::move(own), joint);
  }
  return pipelines;
}

std::vector<Value> Pipelines::rows_of_replicas(const Value& batch, const char* what) const {
  if (at_.replicas == 1) return {batch};
  if (const int64_t rows = rows_of(batch, what); rows < static_cast<int64_t>(at_.replicas))
    throw_invalid(fmt::format("[pipelines] {} has {} rows for {} replicas: each needs one at least", what,
                              rows, at_.replicas));
  if (options_.rows.size() != at_.replicas) return split_batch(batch, static_cast<int>(at_.replicas), what);
  const auto sizes = internal::proportional(rows_of(batch, what), options_.rows);
  if (const auto none = std::ranges::find(sizes, 0); none != sizes.end())
    throw_invalid(
        fmt::format("[pipelines] {} has {} rows, of which replica {} would have none: give more "
                    "rows, or \"rows\" that differ less",
                    what, rows_of(batch, what), none - sizes.begin()));
  return split_batch(batch, sizes);
}

// Those with fewer rows than micro-batches decide for all, since ranks of a stage may meet in each of them.
int Pipelines::micro_batches(const std::vector<Value>& of_replicas, const char* what) const {
  int64_t rows = rows_of(of_replicas[0], what);
  for (const Value& part : of_replicas) rows = std::min(rows, rows_of(part, what));
  return pipelines_.front().parts_of(rows);
}

std::vector<StepOptions> Pipelines::options_of_replicas(const StepOptions& options) const {
  if (options.weights.size() % at_.replicas != 0)
    throw_invalid(
        fmt::format("[pipelines] {} weights for {} replicas: expected one for each micro-batch of the first "
                    "replica, then of the second, and so on",
                    options.weights.size(), at_.replicas));
  const auto each = static_cast<std::ptrdiff_t>(options.weights.size() / at_.replicas);
  std::vector<StepOptions> all(at_.replicas);
  for (const auto& [stage, value] : options.inputs) {
    const auto parts = rows_of_replicas(value, "an input");
    for (size_t r = 0; r < at_.replicas; ++r) all[r].inputs[stage] = parts[r];
  }
  for (size_t r = 0; r < at_.replicas; ++r) {
    const auto first = options.weights.begin() + each * static_cast<std::ptrdiff_t>(r);
    all[r].weights = {first, first + each}, all[r].loss_scale = options.loss_scale;
    for (std::ptrdiff_t m = 0; has_parts_ && m < each; ++m)
      if ((first[m] == 0) != (options.weights[static_cast<size_t>(m)] == 0))
        throw_invalid(
            fmt::format("[pipelines] micro-batch {} has a weight of {} on replica 0 and of {} on replica {}: "
                        "with Shard::all it counts for nothing on all of them or on none",
                        m, options.weights[static_cast<size_t>(m)], first[m], r));
  }
  return all;
}

std::string Pipelines::coordinates(size_t pipeline, const std::string& but) const {
  std::string text;
  for (const MeshDim& d : at_.points.dims())
    if (d.name != but)
      text +=
          fmt::format("{}{} {}", text.empty() ? "" : ", ", d.name, at_.points.coordinate(pipeline, d.name));
  return text;
}

Future<void> Pipelines::ready() const {
  std::vector<Future<void>> each;
  for (const Pipeline& p : pipelines_) each.push_back(p.ready_);
  return all(each).then([](const std::vector<Unit>&) {});
}

Future<PipelinesReport> Pipelines::report() const {
  PipelinesReport out{.mesh = at_.all.str(), .replicas = dim_, .last_step = {}, .ways = {}, .places = {}};
  const PipelineOptions& options = pipelines_.front().options_;
  if (at_.replicas > 1) out.ways = {options.shard, options.gather, options.reduce};
  std::vector<StepReport> steps;
  for (const Pipeline& p : pipelines_) steps.push_back(p.step_report());
  const StepReport& longest = *std::ranges::max_element(steps, {}, &StepReport::duration);
  out.ways.uses = longest.workers ? longest.micro_batches : options.micro_batches;
  if (longest.workers) out.last_step = longest.str().substr(0, longest.str().find('\n'));

  std::vector<StageActor> ranks;  // in the order of the places
  for (size_t s = 0; s < at_.all.size(stages_); ++s)
    for (size_t i = 0; i < pipelines_.size(); ++i) {
      if (at_.replica_of[i] > 0) continue;
      const std::string others = coordinates(i, dim_);
      out.places.push_back({fmt::format("{} {}{}{}", stages_, s, others.empty() ? "" : ", ", others), {}});
      for (size_t r = 0; r < at_.replicas; ++r) {
        const size_t own = dim_.empty() ? i : i + r * at_.points.stride(dim_);
        ranks.push_back(pipelines_[own].stages_[s].part);
        out.places.back().replicas.push_back({.to_stages = sent_to_stages(steps[own], s)});
      }
    }
  return ready()
      .then([ranks] {
        std::vector<Future<RankBytes>> asked;
        for (const StageActor& rank : ranks) asked.push_back(kBytes.ask(rank.actor, rank.replicas));
        return all(asked);
      })
      .then([out](const std::vector<RankBytes>& answers) {
        PipelinesReport report = out;
        auto answer = answers.begin();
        for (auto& place : report.places)
          for (RankBytes& rank : place.replicas) {
            const int64_t to_stages = rank.to_stages;
            rank = *answer++;
            rank.to_stages = to_stages;
          }
        return report;
      });
}

// A step of all of them, or of none: where one fails, nobody waits for the others' any more.
template <class F>
auto Pipelines::begin_all(const F& begin) {
  std::vector<decltype(begin(size_t{0}))> steps(pipelines_.size());
  uint64_t step = 0;
  const auto give_up = [&] {
    for (const Pipeline& p : pipelines_) step = std::max(step, p.step_);
    for (Pipeline& p : pipelines_) p.give_up(step);
  };
  try {
    // What this worker computes would hold up what leaves it: its own begin last.
    for (const bool own : {false, true})
      for (size_t i = 0; i < pipelines_.size(); ++i)
        if ((pipelines_[i].runners_[0].owner() == here_.table().worker().id()) == own) steps[i] = begin(i);
  } catch (...) {
    give_up();
    throw;
  }
  std::vector<std::function<void()>> others;
  for (const Pipeline& p : pipelines_) others.push_back(p.giving_up());
  using Results = std::vector<typename std::decay_t<decltype(steps[0])>::value_type>;
  return all(steps, OnError::at_once).recover([others](const Error& e) -> Results {
    for (const auto& drop : others) drop();
    throw e;
  });
}

Future<StepResult> Pipelines::step_async(const Value& batch, const Value& targets,
                                         const StepOptions& options) {
  check_rows(batch, targets, static_cast<int>(at_.replicas));
  const auto xs = rows_of_replicas(batch, "the batch"), ys = rows_of_replicas(targets, "the targets");
  auto own = options_of_replicas(options);
  const int count = std::min(micro_batches(xs, "the batch"), micro_batches(ys, "the targets"));
  const auto& weights = options.weights;
  const double total = weights.empty() ? static_cast<double>(rows_of(batch, "the batch"))
                                       : std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!(total > 0))
    throw_invalid(fmt::format(
        "[pipelines] the weights of all micro-batches add up to {}; expected a number above 0", total));
  std::vector<std::optional<double>> shares(at_.replicas);
  for (size_t r = 0; r < at_.replicas; ++r) {
    check_rows(xs[r], ys[r], count);
    const auto& weights = own[r].weights;
    const double mine = weights.empty() ? static_cast<double>(rows_of(xs[r], "the batch"))
                                        : std::accumulate(weights.begin(), weights.end(), 0.0);
    if (at_.replicas > 1) shares[r] = mine / total;
  }
  const auto steps = begin_all([&](size_t i) {
    const size_t r = at_.replica_of[i];
    return pipelines_[i].step_of_share(pipelines_[i].cut(xs[r], count, "the batch"),
                                       pipelines_[i].cut(ys[r], count, "the targets"), own[r], shares[r]);
  });
  const bool single = pipelines_.size() == 1;
  std::vector<std::string> places;
  for (size_t i = 0; i < pipelines_.size(); ++i) places.push_back(place(i));
  return steps.then([single, places, replica_of = at_.replica_of,
                     replicas = at_.replicas](const std::vector<StepResult>& results) {
    StepResult sum;
    std::vector<size_t> first(replicas, results.size());  // pipeline of each replica
    for (size_t i = 0; i < results.size(); ++i) {
      size_t& of = first[replica_of[i]];
      if (of == results.size()) {
        of = i;
        sum.weight += results[i].weight;
        sum.loss += results[i].loss * results[i].weight;
        sum.losses.insert(sum.losses.end(), results[i].losses.begin(), results[i].losses.end());
      } else if (results[i].losses != results[of].losses) {
        throw_error(ErrorKind::failed,
                    fmt::format("[pipelines] at {} the loss is {}, and at {} it is {}, of the same rows: "
                                "a sum over the ranks is missing in a stage (TROUPE_CHECK_RANKS=1 finds "
                                "it)",
                                places[of], results[of].loss, places[i], results[i].loss));
      }
    }
    if (single) return results[0];
    sum.loss /= sum.weight;
    return sum;
  });
}

Future<std::vector<Value>> Pipelines::forward_async(const Value& batch, const StepOptions& options) {
  const auto xs = rows_of_replicas(batch, "the batch");
  const auto own = options_of_replicas(options);
  const int count = micro_batches(xs, "the batch");
  const auto runs = begin_all([&](size_t i) {
    const size_t r = at_.replica_of[i];
    return pipelines_[i].forward_async(pipelines_[i].cut(xs[r], count, "the batch"), own[r]);
  });
  return runs.then(
      [replica_of = at_.replica_of, replicas = at_.replicas](const std::vector<std::vector<Value>>& outputs) {
        std::vector<Value> rows;
        for (size_t r = 0; r < replicas; ++r) {
          const auto i = static_cast<size_t>(std::ranges::find(replica_of, r) - replica_of.begin());
          rows.insert(rows.end(), outputs[i].begin(), outputs[i].end());
        }
        return rows;
      });
}

}  // namespace troupe::parallel
