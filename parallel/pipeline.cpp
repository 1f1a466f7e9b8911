#include "parallel/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "autograd/dist/context.h"
#include "core/futures.h"
#include "parallel/choose.h"
#include "parallel/loss_here.h"
#include "parallel/micro_batch.h"

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
Schedule forward_only(int workers, int micro_batches, int chunks) {
  Schedule schedule{"forward", micro_batches, chunks, std::vector<Actions>(static_cast<size_t>(workers))};
  for (Actions& row : schedule.rows)
    for (int c = 0; c < chunks; ++c)
      for (int m = 0; m < micro_batches; ++m) row.push_back({Work::forward, m, c});
  return schedule;
}

// The call is to be made, also where nobody waits for it; that a worker is lost is known already.
void whatever_comes(const Future<void>& call) {
  call.on_ready([](const Result<void>&) {});
}

double mean(const std::vector<double>& values, const std::vector<double>& parts) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += values[i] * parts[i];
  return sum;
}

StepReport join(const std::vector<RunnerReport>& parts, const Policy& policy) {
  StepReport report;
  report.schedule = name_of(policy);
  report.workers = static_cast<int>(parts.size());
  report.micro_batches = micro_batches_of(policy);
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const RunnerReport& part : parts)
    for (const Done& d : part.done) first = std::min(first, d.begin);
  const auto seconds = [&](int64_t t) { return static_cast<double>(t - first) * 1e-9; };
  for (size_t w = 0; w < parts.size(); ++w) {
    double busy = 0;
    for (const Done& d : parts[w].done) {
      const Action action{static_cast<Work>(d.work), static_cast<int>(d.micro_batch),
                          static_cast<int>(d.stage / report.workers)};
      report.events.push_back(
          {static_cast<int>(w), static_cast<int>(d.stage), action, seconds(d.begin), seconds(d.end)});
      report.duration = std::max(report.duration, seconds(d.end));
      busy += static_cast<double>(d.end - d.begin) * 1e-9;
    }
    for (const Came& c : parts[w].came) {
      const auto stage = static_cast<int>(c.stage);
      report.messages.push_back({c.forward ? stage - 1 : stage + 1, stage, static_cast<int>(c.micro_batch),
                                 seconds(c.sent), seconds(c.arrived)});
    }
    report.busy.push_back(busy);
    report.exposed.push_back(static_cast<double>(parts[w].exposed) * 1e-9);
    report.peak_live.push_back(static_cast<int>(parts[w].peak_live));
  }
  return report;
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

Pipeline::Pipeline(const Here& here, std::vector<Stage> stages, PipelineOptions options)
    : here_(here), stages_(std::move(stages)), options_(std::move(options)) {
  check_stages(stages_, options_);
  workers_ = this->stages() / options_.chunks;
  if (options_.micro_batches < 1)
    throw_invalid(fmt::format("[pipeline] {} micro-batches: expected at least 1", options_.micro_batches));
  if (options_.schedule == "auto")
    (void)choose(workers_, options_.micro_batches, {{}}, options_.most_live);  // checks the limits
  else
    (void)policy(options_.micro_batches);
  actors::Worker& worker = here_.table().worker();
  id_ = (uint64_t{worker.id()} << 40) | worker.next_number();
  for (int w = 0; w < workers_; ++w) {
    RunnerSetup setup{id_, w, workers_, {}};
    for (int s = w; s < this->stages(); s += workers_)
      setup.chunks.push_back(stages_[static_cast<size_t>(s)].part);
    const WorkerId at = setup.chunks[0].actor.owner();
    runners_.push_back(here_.spawn<Runner>(at, std::move(setup)).with_timeout(options_.timeout));
  }
  if (options_.loss) loss_ = here_.spawn<LossHere>(here_.id());
  const size_t count = runners_.size();
  for (size_t w = 0; w < count; ++w)
    runners_[w].tell<&Runner::connect>(AnyRef(runners_[(w + count - 1) % count]),
                                       AnyRef(runners_[(w + 1) % count]),
                                       loss_ && w + 1 == count ? AnyRef(loss_) : AnyRef());
}

Pipeline::~Pipeline() {
  try {
    for (const auto& runner : runners_)
      whatever_comes(runner.call<&Runner::close>());  // they refer to each other
  } catch (const Error&) {                            // the cluster has ended
  }
}

Policy Pipeline::policy(int micro_batches) {
  if (const auto at = policies_.find(micro_batches); at != policies_.end()) return at->second;
  if (options_.schedule != "auto")
    return policies_[micro_batches] =
               make_policy(options_.schedule, workers_, micro_batches, options_.chunks);
  if (options_.chunks > 1) throw_invalid("[pipeline] \"auto\" is for one chunk on each worker");
  std::vector<int> most = options_.most_live;
  if (report_->events.empty()) {  // not measured yet: a policy that shows what each part takes
    Credits first = credits(workers_, micro_batches, workers_);
    for (size_t w = 0; w < most.size() && w < first.of_worker.size(); ++w)
      first.of_worker[w] = std::min(first.of_worker[w], most[w]);
    if (most.size() == 1) first = credits(workers_, micro_batches, std::min(workers_, most[0]));
    return first;
  }
  return policies_[micro_batches] =
             choose(workers_, micro_batches, report_->stage_times(stages()), most).policy;
}

std::shared_ptr<Pipeline::Run> Pipeline::prepare(std::vector<Value> batch, const StepOptions& options,
                                                 bool record) {
  const size_t count = batch.size();
  if (count == 0) throw_invalid("[pipeline] a step of no micro-batches");
  auto run = std::make_shared<Run>();
  const auto micro_batches = static_cast<int>(count);
  run->policy =
      record ? policy(micro_batches) : Policy(forward_only(workers_, micro_batches, options_.chunks));
  run->weights = options.weights;
  if (run->weights.empty())
    for (const Value& part : batch)
      run->weights.push_back(static_cast<double>(rows_of(part, "a micro-batch")));
  if (run->weights.size() != count)
    throw_invalid(fmt::format("[pipeline] {} weights for {} micro-batches", run->weights.size(), count));
  run->total = std::accumulate(run->weights.begin(), run->weights.end(), 0.0);
  if (!(run->total > 0))
    throw_invalid(fmt::format("[pipeline] the weights of the micro-batches add up to {}", run->total));
  for (double& w : run->weights) w /= run->total;

  ++step_;
  for (int w = 0; w < workers_; ++w) {
    RunnerStep order{.step = step_,
                     .plan = row_of(run->policy, w),
                     .record = record,
                     .recompute = {},
                     .weights = run->weights,
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
    auto& given = run->orders[static_cast<size_t>(stage % workers_)].given;
    given.resize(static_cast<size_t>(options_.chunks));
    for (Value& part : split_batch(value, micro_batches, "an input"))
      given[static_cast<size_t>(stage / workers_)].push_back(
          part.get_if<ValueList>() ? std::move(*part.get_if<ValueList>()) : ValueList{std::move(part)});
  }
  run->orders[0].batch = std::move(batch);
  return run;
}

Future<std::vector<RunnerReport>> Pipeline::start(const std::shared_ptr<Run>& run) {
  std::vector<Future<RunnerReport>> parts;
  for (size_t w = 0; w < runners_.size(); ++w)
    parts.push_back(runners_[w].call<&Runner::step>(std::move(run->orders[w])));
  // The first error ends it. The others give up, and forget the step.
  return all(parts, OnError::at_once)
      .recover([runners = runners_, step = step_](const Error& e) -> std::vector<RunnerReport> {
        for (const auto& runner : runners) whatever_comes(runner.call<&Runner::drop>(step));
        throw e;
      });
}

Future<StepResult> Pipeline::step_async(const Value& batch, const Value& targets,
                                        const StepOptions& options) {
  std::vector<Value> parts = split_batch(batch, options_.micro_batches, "the batch");
  return step_async(std::move(parts), split_batch(targets, options_.micro_batches, "the targets"), options);
}

Future<StepResult> Pipeline::step_async(std::vector<Value> batch, std::vector<Value> targets,
                                        const StepOptions& options) {
  if (!frame().context)
    throw_invalid(
        "[pipeline] a step leaves its gradients in an autograd::Context, and none is alive here: make one");
  if (!has_loss() && !loss_)
    throw_invalid("[pipeline] there is no loss: give the last stage one (with_loss), or the options");
  if (targets.size() != batch.size())
    throw_invalid(fmt::format("[pipeline] {} targets for {} micro-batches", targets.size(), batch.size()));
  const auto run = prepare(std::move(batch), options, true);
  Future<void> ready = Future<void>::ready({});
  if (loss_)
    ready = loss_.local([step = step_, f = options_.loss, targets = std::move(targets),
                         weights = run->weights, last = AnyRef(runners_.back())](LossHere& loss) mutable {
      loss.begin(step, std::move(f), std::move(targets), std::move(weights), last);
    });
  else
    run->orders.back().targets = std::move(targets);
  const auto reports = start(run);
  return ready.then([reports] { return reports; })
      .then([loss = loss_](const std::vector<RunnerReport>& parts) {
        if (!loss)
          return Future<std::pair<std::vector<RunnerReport>, std::vector<double>>>::ready(
              {parts, parts.back().losses});
        return loss
            .local([](LossHere& l) {
              auto losses = l.losses();
              l.end();
              return losses;
            })
            .then([parts](const std::vector<double>& losses) { return std::pair(parts, losses); });
      })
      .then([run, kept = report_](const std::pair<std::vector<RunnerReport>, std::vector<double>>& done) {
        *kept = join(done.first, run->policy);
        return StepResult{mean(done.second, run->weights), done.second, run->total};
      });
}

Future<std::vector<Value>> Pipeline::forward_async(const Value& batch, const StepOptions& options) {
  const auto run = prepare(split_batch(batch, options_.micro_batches, "the batch"), options, false);
  return start(run).then([run, kept = report_](const std::vector<RunnerReport>& parts) {
    *kept = join(parts, run->policy);
    return parts.back().outputs;
  });
}

actors::Hosting builtin_actors() { return hosting<Runner, LossHere>(); }

}  // namespace troupe::parallel
