#include "parallel/pipeline/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

#include "autograd/distributed/context.h"
#include "core/async/future_combinators.h"
#include "core/base/mutex.h"
#include "core/value/owned_number.h"
#include "parallel/data/replica.h"
#include "parallel/measure/measurer.h"
#include "parallel/module/mesh_module.h"
#include "parallel/pipeline/driver_loss.h"
#include "parallel/pipeline/micro_batch.h"
#include "parallel/pipeline/runner.h"
#include "parallel/pipeline/schedule/choose_policy.h"
#include "parallel/pipeline/stage/stage_parameters.h"
#include "parallel/sharded/sharded_module.h"
#include "rref/ref_table.h"

namespace troupe::parallel {
namespace {

// The row of a worker, or its credits, as its runner reads it.
std::string row_of(const Policy& policy, int worker) {
  const auto i = static_cast<size_t>(worker);
  if (const auto* c = std::get_if<Credits>(&policy))
    return "credits(" + std::to_string(c->of_worker[i]) + ")";
  std::string text;
  for (const Action& a : std::get<Schedule>(policy).rows[i]) text += a.str() + " ";
  return text;
}

// All forwards, in the order in which micro-batches come.
Schedule forward_only(const StageMap& map, int micro_batches) {
  Schedule schedule{"forward", micro_batches, map.chunks(),
                    std::vector<Actions>(static_cast<size_t>(map.workers())), map.by_worker()};
  for (int s = 0; s < map.stages(); ++s)
    for (int m = 0; m < micro_batches; ++m)
      schedule.rows[static_cast<size_t>(map.worker(s))].push_back({Work::forward, m, map.chunk(s)});
  return schedule;
}

// The call is to be made, also where nobody waits for it; that a worker is lost is known already.
void ignore_result(const Future<void>& call) {
  call.on_ready([](const Result<void>&) {});
}

double mean(const std::vector<double>& values, const std::vector<double>& parts) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i)
    if (parts[i] > 0) sum += values[i] * parts[i];  // what counts for nothing may be NaN
  return sum;
}

void check_stages(const std::vector<Stage>& stages, const PipelineOptions& options) {
  if (stages.empty()) throw_invalid("[pipeline] there are no stages");
  if (options.chunks < 1 || stages.size() % static_cast<size_t>(options.chunks) != 0)
    throw_invalid(fmt::format("[pipeline] {} stages cannot be {} chunks for each worker", stages.size(),
                              options.chunks));
  for (size_t s = 0; s < stages.size(); ++s) {
    if (!stages[s].part.actor) throw_invalid(fmt::format("[pipeline] stage {} is an empty reference", s));
    if (!stages[s].part.loss.empty() && s + 1 < stages.size())
      throw_invalid(
          fmt::format("[pipeline] stage {} has a loss: only the last one, {}, may", s, stages.size() - 1));
  }
  const bool carries = std::ranges::any_of(stages, [](const Stage& s) { return s.part.carries; });
  if (options.slices < 1 || carries != (options.slices > 1))
    throw_invalid(
        fmt::format("[pipeline] {} slices, and {} carries anything from one to the next: a sequence in "
                    "slices, 2 or more, "
                    "goes with stages that look back, stage<...>(a).carries()",
                    options.slices, carries ? "a stage" : "no stage"));
  if (carries && options.checkpoint != Checkpoint::never)
    throw_invalid(
        "[pipeline] the forward pass of a slice comes after that of the slice before, which a checkpoint "
        "cannot run again by itself: use Checkpoint::never, or checkpoint() within the stage");
  if (carries && options.schedule == "auto")
    throw_invalid("[pipeline] \"auto\" knows nothing of slices: name a schedule, such as \"1f1b\"");
  if (!stages.back().part.loss.empty() && options.loss)
    throw_invalid("[pipeline] the last stage has a loss, and the options have another: give one of them");
}

}  // namespace

// A step on its way.
struct Pipeline::Run {
  Policy policy;
  std::vector<RunnerStep> orders;  // by worker
  std::vector<double> weights;     // that add up to 1
  double total = 0;
};

Stage Stage::gives(std::vector<std::string> names) const {
  Stage out = *this;
  out.skips.gives = std::move(names);
  return out;
}

Stage Stage::carries() const {
  Stage out = *this;
  out.part.carries = true;
  return out;
}

Stage Stage::takes(std::vector<std::string> names) const {
  Stage out = *this;
  out.skips.takes = std::move(names);
  return out;
}

// Written where steps end, while the next ones may have begun.
struct Pipeline::LastReport {
  StepReport get() {
    std::lock_guard lock(mutex);
    return report;
  }
  void keep(StepReport last) {
    std::lock_guard lock(mutex);
    report = std::move(last);
  }
  internal::Mutex mutex;
  StepReport report;
};

StepReport Pipeline::step_report() const { return report_->get(); }

const StepOptions StepOptions::defaults = {};

Stage::Stage() = default;
Stage::Stage(const Stage&) = default;
Stage::Stage(Stage&&) noexcept = default;
Stage& Stage::operator=(const Stage&) = default;
Stage& Stage::operator=(Stage&&) noexcept = default;
Stage::~Stage() = default;

Pipeline::Pipeline(const Here& here, std::vector<Stage> stages, PipelineOptions options,
                   internal::parallel::Joint joint)
    : here_(here),
      stages_(std::move(stages)),
      options_(std::move(options)),
      joint_(std::move(joint)),
      report_(std::make_shared<LastReport>()) {
  check_stages(stages_, options_);
  map_ = StageMap::loop(this->stages() / options_.chunks, options_.chunks);
  connect();
  if (options_.micro_batches < 1)
    throw_invalid(fmt::format("[pipeline] {} micro-batches: expected at least 1", options_.micro_batches));
  if (options_.schedule == "auto")
    (void)choose(workers(), options_.micro_batches, {{}}, options_.most_live);  // checks the limits
  else
    map_ = map_of(policy(options_.micro_batches * options_.slices));
  internal::actors::Worker& worker = here_.table().worker();
  id_ = internal::owned_number(worker.id(), worker.next_number());
  join_replicas();
  make_runners();
}

void Pipeline::make_runners() {
  // What comes in the place of others draws no number of the program's.
  const auto as_before = [&](size_t i) {
    return i < joint_.paths.size()
               ? std::make_unique<internal::rref::RefTable::SpawnAs>(here_.table(), joint_.paths[i])
               : nullptr;
  };
  for (int w = 0; w < workers(); ++w) {
    RunnerSetup setup{id_, w, map_.by_worker(), {}, joint_.number};
    for (int c = 0; c < map_.chunks(); ++c)
      setup.chunks.push_back(stages_[static_cast<size_t>(map_.stage(w, c))].part);
    const WorkerId at = setup.chunks[0].actor.owner();
    const auto as = as_before(static_cast<size_t>(w));
    runners_.push_back(here_.spawn<Runner>(at, std::move(setup)).with_timeout(options_.timeout));
  }
  const auto as = as_before(runners_.size());
  if (options_.loss) loss_ = here_.spawn<DriverLoss>(here_.id());
  for (int w = 0; w < workers(); ++w)
    runners_[static_cast<size_t>(w)].tell<&Runner::connect>(
        peers_of(w), loss_ && w == map_.worker(this->stages() - 1) ? AnyRef(loss_) : AnyRef());
}

const RRef<Runner>& Pipeline::last_runner() const {
  return runners_[static_cast<size_t>(map_.worker(stages() - 1))];
}

// Skips and ties, from stage to stage.
void Pipeline::connect() {
  std::vector<SkipNames> skips;
  std::vector<AnyRef> actors;
  for (const Stage& s : stages_) skips.push_back(s.skips), actors.push_back(s.part.actor);
  auto links = connect_skips(skips);
  auto ties = connect_ties(options_.tied, actors);
  for (size_t s = 0; s < stages_.size(); ++s)
    stages_[s].part.links = std::move(links[s]), stages_[s].part.ties = std::move(ties[s]);
  std::vector<Future<void>> told;
  for (const auto& copies : options_.tied)
    for (size_t i = 1; i < copies.size(); ++i)
      told.push_back(kTie.ask(actors[static_cast<size_t>(copies[i].stage)], copies[i].name,
                              actors[static_cast<size_t>(copies[0].stage)], copies[0].name)
                         .then([](const Value&) {}));
  ready_ = all(told).then([](const std::vector<Unit>&) {});
}

// Behind the ties: the first pipeline's stages have the values that all others take.
void Pipeline::join_replicas() {
  if (options_.shard == Shard::all && !joint_.number && !options_.replicas.empty())
    throw_invalid(
        "[pipeline] replicas of stages gather their parameters together, and pipelines that are made one by "
        "one know nothing of each other: use Pipelines, or Shard::gradients");
  if (options_.replicas.empty()) return;
  if (options_.shard == Shard::all && !options_.tied.empty())
    throw_invalid(
        "[pipeline] ties are of whole parameters, and Shard::all leaves pieces: use Shard::gradients, or "
        "leave out the ties");
  if (options_.replicas.size() != stages_.size())
    throw_invalid(
        fmt::format("[pipeline] replicas of {} stages, and there are {}: give a group for each stage",
                    options_.replicas.size(), stages_.size()));
  std::vector<Future<void>> joined{ready_};
  for (size_t s = 0; s < stages_.size(); ++s) {
    StageActor& part = stages_[s].part;
    part.replicas = fmt::format("pipeline {} stage {}", id_, s);
    JoinOrder order{part.replicas, fmt::format("stage {}", s), options_.replicas[s]};
    order.shard = static_cast<int64_t>(options_.shard);
    order.gather = static_cast<int64_t>(options_.gather);
    order.reduce = static_cast<int64_t>(options_.reduce);
    order.again = joint_.heals;
    joined.push_back(kJoin.ask(part.actor, order).then([](int64_t) {}));
  }
  ready_ = all(joined).then([](const std::vector<Unit>&) {});
}

std::vector<AnyRef> Pipeline::peers_of(int worker) const {
  std::vector<AnyRef> peers(runners_.size());
  const auto meet = [&](int64_t stage) {
    const auto w = static_cast<size_t>(map_.worker(stage));
    peers[w] = AnyRef(runners_[w]);
  };
  for (int c = 0; c < map_.chunks(); ++c) {
    const int s = map_.stage(worker, c);
    if (s > 0) meet(s - 1);
    if (s + 1 < stages()) meet(s + 1);
    const StageLinks& links = stages_[static_cast<size_t>(s)].part.links;
    for (const SkipLink& to : links.takes) meet(to.stage);
    for (const auto& users : links.gives)
      for (const SkipLink& to : users) meet(to.stage);
    for (const Tie& tie : stages_[static_cast<size_t>(s)].part.ties)
      for (const SkipLink& to : tie.others) meet(to.stage);
  }
  return peers;
}

std::vector<AnyRef> Pipeline::helpers() const {
  std::vector<AnyRef> all(runners_.begin(), runners_.end());
  if (loss_) all.push_back(AnyRef(loss_));
  return all;
}

std::vector<std::string> Pipeline::paths_of_runners() const {
  std::vector<std::string> paths;
  for (const AnyRef& a : helpers()) paths.push_back(a.handle()->path());
  return paths;
}

Pipeline::~Pipeline() {
  try {
    for (const auto& runner : runners_)
      ignore_result(runner.call<&Runner::close>());  // they refer to each other
    for (const Stage& s : stages_)
      if (!s.part.replicas.empty()) kLeave.tell(s.part.actor, s.part.replicas);
  } catch (const Error&) {  // the cluster has ended
  }
}

// The sequences are whole in it.
Policy Pipeline::named_policy(int micro_batches) const {
  const bool fewer = micro_batches < options_.micro_batches;
  const bool table = options_.schedule.find(':') != std::string::npos;
  const bool whole_rounds = options_.schedule == "interleaved";
  return fewer && (table || (whole_rounds && micro_batches % workers() != 0))
             ? first_of(named_policy(options_.micro_batches), micro_batches)
             : make_policy(options_.schedule, workers(), micro_batches, options_.chunks);
}

Policy Pipeline::policy(int micro_batches) {
  if (const auto at = policies_.find(micro_batches); at != policies_.end()) return at->second;
  const int slices = options_.slices;
  if (micro_batches % slices != 0)
    throw_invalid(
        fmt::format("[pipeline] {} micro-batches are no multiple of {} slices", micro_batches, slices));
  if (options_.schedule != "auto")
    return policies_[micro_batches] = sliced(named_policy(micro_batches / slices), slices);
  if (options_.chunks > 1) throw_invalid("[pipeline] \"auto\" is for one chunk on each worker");
  std::vector<int> most = options_.most_live;
  const StepReport measured = report_->get();
  if (measured.events.empty()) {  // not measured yet: a policy that shows what each part takes
    Credits first = credits(workers(), micro_batches, workers());
    for (size_t w = 0; w < most.size() && w < first.of_worker.size(); ++w)
      first.of_worker[w] = std::min(first.of_worker[w], most[w]);
    if (most.size() == 1) first = credits(workers(), micro_batches, std::min(workers(), most[0]));
    return first;
  }
  return policies_[micro_batches] =
             choose(workers(), micro_batches, measured.stage_times(stages()), most).policy;
}

std::shared_ptr<Pipeline::Run> Pipeline::prepare(std::vector<Value> batch, const StepOptions& options,
                                                 std::optional<double> share, bool record) {
  const size_t count = batch.size();
  if (count == 0) throw_invalid("[pipeline] a step of no micro-batches");
  if (count % static_cast<size_t>(options_.slices) != 0)
    throw_invalid(
        fmt::format("[pipeline] {} parts of a batch are no multiple of {} slices", count, options_.slices));
  auto run = std::make_shared<Run>();
  const auto micro_batches = static_cast<int>(count);
  run->policy = record ? policy(micro_batches) : Policy(forward_only(map_, micro_batches));
  run->weights = weights_of_slices(batch, options_.slices, options.weights);
  if (run->weights.size() != count)
    throw_invalid(fmt::format("[pipeline] {} weights for {} micro-batches", run->weights.size(),
                              count / static_cast<size_t>(options_.slices)));
  for (size_t m = 0; m < count; ++m)
    if (!(run->weights[m] >= 0))
      throw_invalid(fmt::format("[pipeline] micro-batch {} has a weight of {}; expected 0 or more", m,
                                run->weights[m]));
  run->total = std::accumulate(run->weights.begin(), run->weights.end(), 0.0);
  if (!(run->total > 0 || share == 0.0) || !std::isfinite(run->total))
    throw_invalid(fmt::format(
        "[pipeline] the weights of the micro-batches add up to {}; expected a number above 0", run->total));
  for (double& w : run->weights) w = run->total > 0 ? w / run->total : 0;
  if (!(options.loss_scale >= 0) || !std::isfinite(options.loss_scale))
    throw_invalid(fmt::format("[pipeline] a loss scale of {}; expected a number above 0, or 0 for none",
                              options.loss_scale));

  ++step_;
  for (int w = 0; w < workers(); ++w) {
    RunnerStep order{.step = step_,
                     .plan = row_of(run->policy, w),
                     .record = record,
                     .recompute = {},
                     .weights = run->weights,
                     .total = share.value_or(run->total),
                     .shares = share.has_value(),
                     .loss_scale = options.loss_scale,
                     .slices = options_.slices,
                     .batch = {},
                     .targets = {},
                     .given = {}};
    for (size_t m = 0; m < count; ++m)
      order.recompute.push_back(options_.checkpoint == Checkpoint::always ||
                                (options_.checkpoint == Checkpoint::except_last && m + 1 < count));
    run->orders.push_back(std::move(order));
  }
  for (const auto& [stage, value] : options.inputs) {
    if (stage < 0 || stage >= stages())
      throw_invalid(fmt::format("[pipeline] inputs for stage {}: there are {} stages", stage, stages()));
    auto& given = run->orders[static_cast<size_t>(map_.worker(stage))].given;
    given.resize(static_cast<size_t>(options_.chunks));
    for (Value& part : slice_batch(value, micro_batches / options_.slices, options_.slices, "an input"))
      given[static_cast<size_t>(map_.chunk(stage))].push_back(
          part.get_if<ValueList>() ? std::move(*part.get_if<ValueList>()) : ValueList{std::move(part)});
  }
  run->orders[static_cast<size_t>(map_.worker(0))].batch = std::move(batch);
  return run;
}

Future<std::vector<RunnerReport>> Pipeline::start(const std::shared_ptr<Run>& run) {
  const auto begin = [run, runners = runners_] {
    std::vector<Future<RunnerReport>> parts;
    for (size_t w = 0; w < runners.size(); ++w)
      parts.push_back(runners[w].call<&Runner::step>(std::move(run->orders[w])));
    return all(parts, OnError::at_once);
  };
  // The first error ends it. The others give up, and forget the step.
  return (options_.tied.empty() && options_.replicas.empty() ? begin() : ready_.then(begin))
      .recover([drop = giving_up()](const Error& e) -> std::vector<RunnerReport> {
        drop();
        throw e;
      });
}

void Pipeline::give_up(uint64_t step) {
  step_ = std::max(step_, step);
  giving_up()();
}

std::function<void()> Pipeline::giving_up() const {
  return [runners = runners_, step = step_] {
    for (const auto& runner : runners) ignore_result(runner.call<&Runner::drop>(step));
  };
}

// A batch with few rows, such as the last one, is cut into as many parts as it has.
int Pipeline::parts_of(int64_t rows) const {
  if (rows < 1) throw_invalid("[pipeline] the batch has no rows");
  return static_cast<int>(std::min<int64_t>(options_.micro_batches, rows));
}

std::vector<Value> Pipeline::cut(const Value& batch, int count, const char* what) const {
  return slice_batch(batch, count, options_.slices, what);
}

Future<StepResult> Pipeline::step_async(const Value& batch, const Value& targets,
                                        const StepOptions& options) {
  const int count = parts_of(std::min(rows_of(batch, "the batch"), rows_of(targets, "the targets")));
  check_rows(batch, targets, count);
  std::vector<Value> parts = cut(batch, count, "the batch");
  return step_async(std::move(parts), cut(targets, count, "the targets"), options);
}

Future<StepResult> Pipeline::step_async(std::vector<Value> batch, std::vector<Value> targets,
                                        const StepOptions& options) {
  return step_of_share(std::move(batch), std::move(targets), options, {});
}

Future<StepResult> Pipeline::step_of_share(std::vector<Value> batch, std::vector<Value> targets,
                                           const StepOptions& options, std::optional<double> share) {
  if (!frame().context)
    throw_invalid(
        "[pipeline] a step leaves its gradients in an autograd::Context, and none is alive here: make one");
  if (!has_loss() && !loss_)
    throw_invalid("[pipeline] there is no loss: give the last stage one (with_loss), or the options");
  if (targets.size() != batch.size())
    throw_invalid(fmt::format("[pipeline] {} targets for {} micro-batches", targets.size(), batch.size()));
  if (options_.slices > 1) check_positions(batch, targets);
  const auto run = prepare(std::move(batch), options, share, true);
  Future<void> ready = Future<void>::ready({});
  if (loss_)
    ready =
        loss_.local([step = step_, f = options_.loss, targets = std::move(targets), weights = run->weights,
                     scale = options.loss_scale, last = AnyRef(last_runner())](DriverLoss& loss) mutable {
          loss.begin(step, std::move(f), std::move(targets), std::move(weights), scale, last);
        });
  else
    run->orders[static_cast<size_t>(map_.worker(stages() - 1))].targets = std::move(targets);
  const auto reports = start(run);
  const auto last = static_cast<size_t>(map_.worker(stages() - 1));
  return ready.then([reports] { return reports; })
      .then([loss = loss_, step = step_, last](const std::vector<RunnerReport>& parts) {
        if (!loss)
          return Future<std::pair<std::vector<RunnerReport>, std::vector<double>>>::ready(
              {parts, parts[last].losses});
        return loss.local([step](DriverLoss& l) { return l.end(step); })
            .then([parts](const std::vector<double>& losses) { return std::pair(parts, losses); });
      })
      .then([run, kept = report_](const std::pair<std::vector<RunnerReport>, std::vector<double>>& done) {
        kept->keep(join(done.first, run->policy));
        return StepResult{mean(done.second, run->weights), done.second, run->total};
      });
}

Future<void> Pipeline::forwards_done() { return last_runner().call<&Runner::after_forwards>(step_); }

Future<void> Pipeline::keep_versions() {
  std::vector<Future<Value>> told;
  for (const Stage& stage : stages_) told.push_back(kKeepVersions.ask(stage.part.actor));
  return all(told).then([](const ValueList&) {});
}

Future<std::vector<Value>> Pipeline::forward_async(const Value& batch, const StepOptions& options) {
  const int count = parts_of(rows_of(batch, "the batch"));
  return forward_async(cut(batch, count, "the batch"), options);
}

Future<std::vector<Value>> Pipeline::forward_async(std::vector<Value> batch, const StepOptions& options) {
  const auto run = prepare(std::move(batch), options, {}, false);
  const auto last = static_cast<size_t>(map_.worker(stages() - 1));
  return start(run).then([run, last, kept = report_](const std::vector<RunnerReport>& parts) {
    kept->keep(join(parts, run->policy));
    return parts[last].outputs;
  });
}

internal::actors::TypeRegistry builtin_actors() {
  return hosting<Runner, DriverLoss, ShardedModule, MeshModule, internal::parallel::Measurer>();
}

}  // namespace troupe::parallel
