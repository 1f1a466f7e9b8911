#include "parallel/plan/layout_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "parallel/data/buckets.h"
#include "parallel/pipeline/schedule/choose_policy.h"
#include "parallel/plan/cut_model.h"

namespace troupe::parallel {
namespace {

using internal::collective::Collective;
using internal::parallel::CutModel;

// Times of a layout's step.
class StepFormulas {
 public:
  explicit StepFormulas(const CutModel& model)
      : model_(model),
        layout_(model.layout()),
        has_free_cores_(model.profile().cores > model.workers().most_on_a_machine()),
        cuts_passes_(model.layout().pp > 1 && model.layout().schedule.starts_with("zb")) {}

  struct StageCost {
    StageTimes times;    // of a micro-batch, with sums and gathers
    StageTimes alone;    // the same while no other worker of the machine works
    double compute = 0;  // of these, without
  };
  StageCost stage(int64_t replica, size_t s) const {
    const double rows = model_.rows(replica), speed = model_.speed(replica, s);
    StageTimes t{0, 0, 0}, saved{0, 0, 0};
    double sums = 0, copies = 0;  // of ranks, in one direction; of what several of them have
    for (size_t i = model_.begin(s); i < model_.end(s); ++i) {
      const LayerCost& l = model_.layer(i);
      const double part = model_.part(l, l.time_divided) / speed;
      const bool cuts = cuts_passes(s);
      const RowTime input = cuts ? l.input : RowTime{}, weight = cuts ? l.weight : l.backward;
      t.forward += l.forward.of(rows) * part, t.input += input.of(rows) * part;
      const double adding = l.adding * (model_.micro_batches() - 1) / model_.micro_batches();
      t.weight += (weight.of(rows) + adding) * part;
      const double less = part * (1 - l.alone_at(rows, static_cast<double>(model_.profile().batch)));
      saved.forward += l.forward.of(rows) * less, saved.input += input.of(rows) * less;
      saved.weight += (weight.of(rows) + adding) * less;
      sums += model_.exchanges(l, replica, s), copies += model_.over_copies(l, replica, s);
      if (l.sums) sums += static_cast<double>(l.sums) * model_.over_ranks(l.output * rows, replica, s);
    }
    const double forward = t.forward, m = model_.micro_batches();
    const double again = layout_.checkpoint == Checkpoint::always        ? 1
                         : layout_.checkpoint == Checkpoint::except_last ? (m - 1) / m
                                                                         : 0;
    t.input += forward * again, saved.input += saved.forward * again;
    StageCost cost{t, {}, t.forward + t.input + t.weight};
    cost.times.forward += sums, cost.times.input += sums, cost.times.weight += copies;
    if (layout_.shard == Shard::all && layout_.dp > 1) add_gathers(s, cost.times);
    const StageTimes& all = cost.times;
    cost.alone = {all.forward - saved.forward, all.input - saved.input, all.weight - saved.weight};
    return cost;
  }

  // Seconds from the end of a stage's last pass to that of the sums of its gradients. A bucket goes as soon
  // as the pass has come by its layers; parts that are gathered wait for the end.
  double summed(int64_t replica, size_t s) const {
    if (layout_.dp < 2 || (layout_.shard == Shard::all && layout_.reduce == Per::use)) return 0;
    const bool cuts = layout_.shard == Shard::gradients || layout_.shard == Shard::all;
    const Collective c = cuts ? Collective::reduce_scatter : Collective::all_reduce;
    const bool waits = !cuts_passes(s) && layout_.shard == Shard::all;
    const bool under = !waits && sums_lie_under(s);
    const BucketSizes sizes;
    auto limit = static_cast<double>(sizes.first);
    double left = 0, bucket = 0;
    for (size_t i = model_.begin(s); i < model_.end(s); ++i) left += under ? last_pass(replica, s, i) : 0;
    double end = -left;
    const auto sends = [&](double bytes, double at) {
      end = std::max(end, at) + model_.over_replicas(c, bytes, s);
      bucket = 0, limit = static_cast<double>(sizes.others);
    };
    // Parameters of a layer come one after the other.
    for (size_t i = model_.end(s); i-- > model_.begin(s);) {
      const double bytes = model_.parameters_of(model_.layer(i));
      const double pass = under ? last_pass(replica, s, i) : 0;
      double come = 0;
      while (bytes - come >= limit - bucket) {
        come += limit - bucket;
        sends(limit, -left + pass * come / bytes);
      }
      bucket += bytes - come, left -= pass;
    }
    if (bucket > 0) sends(bucket, 0);
    return std::max(0.0, end);
  }
  // Parameters that a step leaves in pieces are gathered behind it.
  double gathered_after(size_t s) const {
    if (layout_.dp < 2 || layout_.shard == Shard::none || layout_.shard == Shard::all) return 0;
    return model_.over_replicas(Collective::all_gather, model_.parameters(s), s);
  }
  double optimizer(int64_t replica, size_t s) const {
    const double divided = layout_.shard == Shard::none ? 1 : model_.replicas();
    return model_.profile().optimizer * model_.parameters(s) / divided / model_.speed(replica, s);
  }

 private:
  // Seconds in which the last pass of a step goes by a layer, back.
  double last_pass(int64_t replica, size_t s, size_t i) const {
    const LayerCost& l = model_.layer(i);
    const RowTime& back = cuts_passes(s) ? l.weight : l.backward;
    return back.of(model_.rows(replica)) * model_.part(l, l.time_divided) / model_.speed(replica, s);
  }
  // Nobody waits for gradients of the model's input.
  bool cuts_passes(size_t s) const { return cuts_passes_ && s > 0; }
  bool sums_lie_under(size_t) const { return has_free_cores_; }
  // Each part is gathered under the one before it; the first under nothing.
  void add_gathers(size_t s, StageTimes& t) const {
    double gather = 0, first = 0;
    for (size_t i = model_.begin(s); i < model_.end(s); ++i) {
      const double took =
          model_.over_replicas(Collective::all_gather, model_.parameters_of(model_.layer(i)), s);
      gather += took;
      if (i == model_.begin(s)) first = took;
    }
    const bool under = sums_lie_under(s);
    const auto shown = [&](double computing) { return under ? std::max(first, gather - computing) : gather; };
    if (layout_.reduce == Per::use) t.weight += gather;
    if (layout_.gather == Per::use) t.forward += shown(t.forward), t.input += shown(t.input + t.weight);
  }

  const CutModel& model_;
  const PlannedLayout& layout_;
  const bool has_free_cores_;
  const bool cuts_passes_;  // the schedule puts off gradients of parameters
};

// Bytes of gradients while the first or the last pass of a step goes back through a stage. What replicas
// divide is that of rank_bytes.cpp.
class ComingGradients {
 public:
  ComingGradients(const CutModel& model, size_t stage, bool is_first)
      : parameters_(model.parameters(stage)),
        replicas_(model.layout().dp > 1 ? model.replicas() : 1),
        several_(!is_first),
        in_context_(several_ && replicas_ == 1 && model.layout().ranks() > 1),
        shard_(replicas_ == 1 ? Shard::none : model.layout().shard),
        cuts_(shard_ == Shard::gradients || shard_ == Shard::all),
        by_parts_(shard_ == Shard::all && model.layout().reduce == Per::use),
        sends_(replicas_ > 1 && (by_parts_ || several_ || model.layout().micro_batches == 1)),
        copies_(cuts_ || (replicas_ > 1 && !model.between_hosts(stage))) {
    // The passes before have brought theirs, to which this one adds its own.
    if (several_) (by_parts_ ? pieces_ : whole_) = by_parts_ ? parameters_ / replicas_ : parameters_;
  }
  double there() const { return whole_ + pieces_ + sent_; }
  /// The pass has come by so many bytes of parameters, `last`: by all. Gives the most that there is by then.
  double come_by(double parameters, bool last) {
    if (!several_ || by_parts_ || in_context_) whole_ += parameters;
    bucket_ += parameters;
    if (!sends_) return there();
    double most = there();
    while (bucket_ > 0 && (by_parts_ || last || bucket_ >= limit_))
      most = std::max(most, send(by_parts_ ? bucket_ : std::min(bucket_, limit_)));
    return most;
  }
  /// While the optimizer steps, and while parameters are gathered behind it.
  double in_optimizer() const {
    if (in_context_) return 3 * parameters_;  // of the passes before, of the last one, and of all
    const double piece = parameters_ / replicas_;
    if (shard_ == Shard::none) return parameters_;
    if (shard_ == Shard::all) return piece;
    return (cuts_ ? piece : parameters_) + piece + parameters_;
  }

 private:
  // Two buckets are on their way. What is cut travels packed, and to others of a host as a copy.
  double send(double bytes) {
    bucket_ -= bytes, on_the_way_.push_back(bytes);
    sent_ += copies_ ? bytes : 0;
    if (cuts_ && !(by_parts_ && several_)) pieces_ += bytes / replicas_;
    const double most = there();
    limit_ = static_cast<double>(BucketSizes().others);
    if (on_the_way_.size() < 2) return most;
    if (cuts_) whole_ -= on_the_way_[0];
    sent_ -= copies_ ? on_the_way_[0] : 0, on_the_way_.erase(on_the_way_.begin());
    return most;
  }

  const double parameters_, replicas_;
  const bool several_;     // passes before it
  const bool in_context_;  // where ranks wait for each other, each pass has gradients of its own
  const Shard shard_;
  const bool cuts_, by_parts_;  // the second: they go to the replicas at each use
  const bool sends_, copies_;
  double whole_ = 0, pieces_ = 0, sent_ = 0, bucket_ = 0;
  double limit_ = static_cast<double>(BucketSizes().first);
  std::vector<double> on_the_way_;
};

LayoutCost memory_of_stage(const CutModel& model, int64_t replica, size_t s, int live) {
  const PlannedLayout& layout = model.layout();
  LayoutCost m;
  const double p = model.parameters(s), n = model.replicas(), rows = model.rows(replica);
  const bool all = layout.shard == Shard::all && layout.dp > 1;
  double largest = 0, saved = 0, input = s ? model.layer(model.begin(s) - 1).output * rows : 0;
  for (size_t i = model.begin(s); i < model.end(s); ++i) {
    const LayerCost& l = model.layer(i);
    largest = std::max(largest, model.parameters_of(l)), saved += l.saved * model.part(l, l.saved_divided);
  }
  for (int64_t t = 0; t < layout.ranks(); ++t)
    m.before = std::max(m.before, model.workers().before(model.worker(replica, s, t)));
  m.parameters = all ? p / n + (layout.gather == Per::step ? p : 2 * largest) : p;
  m.state = model.profile().state * (layout.shard == Shard::none ? p : p / n);
  const auto note = [&](double gradients, double activations) {
    if (gradients + activations <= m.gradient_bytes + m.activations) return;
    m.gradient_bytes = gradients, m.activations = activations;
  };
  // While other micro-batches are alive, one goes back: layer for layer, what was saved goes, and gradients
  // come. When the second does, those of the first are there.
  for (const bool first : {true, false}) {
    if (!first && layout.micro_batches == 1) continue;
    const int alive = first ? live : std::min<int>(live, static_cast<int>(layout.micro_batches) - 1);
    const double others = layout.checkpoint == Checkpoint::never ? (alive - 1) * saved * rows : alive * input;
    double left = saved;
    ComingGradients coming(model, s, first);
    for (size_t i = model.end(s); i-- > model.begin(s);) {
      const LayerCost& l = model.layer(i);
      const double part = model.part(l, l.saved_divided);
      note(coming.there(), others + (left + l.working * part) * rows);
      left -= l.saved * part;
      note(coming.come_by(model.parameters_of(l), i == model.begin(s)), others + std::max(0.0, left) * rows);
    }
    note(coming.in_optimizer(), 0);
  }
  m.memory = m.before + m.parameters + m.gradient_bytes + m.state + m.activations;
  return m;
}

double sent_by_stage(const CutModel& model, int64_t replica, size_t s) {
  const PlannedLayout& layout = model.layout();
  const double p = model.parameters(s), part = (model.replicas() - 1) / model.replicas(),
               uses = model.micro_batches(), rows = model.rows(replica), n = static_cast<double>(layout.tp);
  double times = layout.shard == Shard::state ? 3 : 2;
  if (layout.shard == Shard::all)
    times = (layout.gather == Per::use ? 2 * uses : 1) + (layout.reduce == Per::use ? uses : 1);
  double bytes = p * part * times;
  const auto context = static_cast<double>(layout.cp), experts = static_cast<double>(layout.ep);
  for (size_t i = model.begin(s); layout.ranks() > 1 && i < model.end(s); ++i) {
    const LayerCost& l = model.layer(i);
    bytes += 2 * static_cast<double>(l.sums) * uses * 2 * (n - 1) / n * l.output * rows;
    if (l.sums) bytes += 2 * 4 * uses * (context - 1) / context * l.output * rows;
    bytes += 2 * 2 * uses * (experts - 1) / experts * static_cast<double>(l.chosen) * l.output * rows;
    bytes += 2 * uses * (context * experts - 1) / (context * experts) * model.dense_parameters_of(l);
  }
  if (s + 1 < model.stages()) bytes += model.layer(model.end(s) - 1).output * rows * uses;
  if (s > 0) bytes += model.layer(model.begin(s) - 1).output * rows * uses;
  return bytes;
}

}  // namespace

double least_step(const ModelProfile& profile, const PlannedWorkers& workers, const PlannedLayout& layout) {
  const CutModel model(profile, workers, layout);
  const StepFormulas f(model);
  double most = 0;
  for (size_t s = 0; s < model.stages(); ++s) {
    const StageTimes t = f.stage(0, s).alone;
    most = std::max(most, model.micro_batches() * (t.forward + t.input + t.weight) + f.summed(0, s) +
                              f.optimizer(0, s) + f.gathered_after(s));
  }
  return most;
}

LayoutCost memory_of(const ModelProfile& profile, const PlannedWorkers& workers, const PlannedLayout& layout,
                     const std::vector<int>& live) {
  const CutModel model(profile, workers, layout);
  LayoutCost most;
  for (int64_t d = 0; d < layout.dp; ++d)
    for (size_t s = 0; s < model.stages(); ++s)
      if (LayoutCost m = memory_of_stage(model, d, s, live.at(s)); m.memory > most.memory)
        most = m, most.worker = model.worker(d, s, 0);
  return most;
}

namespace {

// The workers of a replica. Those of the others do the same as these, more or less.
SharedProcessors processors_of(const CutModel& model, int64_t replica) {
  SharedProcessors shared{.all = model.workers().timed_together()};
  std::set<size_t> own;
  for (size_t s = 0; s < model.stages(); ++s) {
    const size_t machine = model.workers().machine(model.worker(replica, s, 0));
    shared.machine.push_back(static_cast<int>(machine)), own.insert(machine);
  }
  double there = 0;
  for (size_t w = 0; w < static_cast<size_t>(model.layout().workers()); ++w)
    if (own.contains(model.workers().machine(w))) ++there;
  shared.like = there / static_cast<double>(model.stages());
  return shared;
}

// The step of one replica, whose stages take these.
LayoutCost cost_of_replica(const CutModel& model, int64_t replica,
                           const std::vector<StepFormulas::StageCost>& stages, const Simulation& run) {
  const StepFormulas f(model);
  std::vector<double> end(stages.size(), 0);  // of the last backward pass
  for (const auto& e : run.events) {
    double& last = end[static_cast<size_t>(e.worker)];
    if (e.action.work != Work::forward) last = std::max(last, e.end);
  }
  LayoutCost cost;
  size_t last = 0;
  double behind = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    const double summed = f.summed(replica, s);
    const double all = end[s] + summed + f.optimizer(replica, s) + f.gathered_after(s);
    if (all > cost.step) cost.step = all, last = s, behind = summed;
    cost.sent = std::max(cost.sent, sent_by_stage(model, replica, s));
  }
  const StageTimes& t = stages[last].times;
  cost.sums = model.micro_batches() * (t.forward + t.input + t.weight - stages[last].compute);
  cost.compute = run.busy[last] - cost.sums;
  cost.optimizer = f.optimizer(replica, last);
  cost.gradients = behind + f.gathered_after(last);
  cost.bubble = std::max(0.0, cost.step - cost.compute - cost.sums - cost.optimizer - cost.gradients);
  return cost;
}

}  // namespace

LayoutCost cost_of(const ModelProfile& profile, const PlannedWorkers& workers, const PlannedLayout& layout,
                   Simulation& simulated) {
  const CutModel model(profile, workers, layout);
  const StepFormulas f(model);
  const Policy policy =
      make_policy(layout.schedule, static_cast<int>(layout.pp), static_cast<int>(layout.micro_batches));
  LayoutCost worst;
  std::set<std::vector<double>> seen;  // replicas that differ in nothing are simulated once
  std::vector<int> live;
  for (int64_t d = 0; d < layout.dp; ++d) {
    const Hop hop = model.hop(d);
    std::vector<StageTimes> times;
    std::vector<StepFormulas::StageCost> stages;
    std::vector<double> key{hop.latency, hop.busy};
    SharedProcessors shared = processors_of(model, d);
    for (size_t s = 0; s < model.stages(); ++s) {
      stages.push_back(f.stage(d, s)), times.push_back(stages.back().times);
      shared.alone.push_back(stages.back().alone);
      key.insert(key.end(), {times[s].forward, times[s].input, times[s].weight});
    }
    key.push_back(shared.like);
    for (const int machine : shared.machine) key.push_back(machine - shared.machine[0]);
    if (!seen.insert(key).second) continue;
    if (std::ranges::all_of(profile.layers, [](const LayerCost& l) { return l.alone >= 1; })) shared = {};
    const Simulation run = simulate(policy, times, 1, hop, shared);
    LayoutCost cost = cost_of_replica(model, d, stages, run);
    cost.step += model.driver(), cost.bubble += model.driver();
    if (cost.step > worst.step) worst = cost, simulated = run;
    live = run.peak_live;
  }
  const LayoutCost memory = memory_of(profile, workers, layout, live);
  worst.memory = memory.memory, worst.before = memory.before, worst.parameters = memory.parameters;
  worst.gradient_bytes = memory.gradient_bytes, worst.state = memory.state;
  worst.activations = memory.activations, worst.worker = memory.worker;
  return worst;
}

LayoutCost cost_of(const ModelProfile& profile, const PlannedWorkers& workers, const PlannedLayout& layout) {
  Simulation run;
  return cost_of(profile, workers, layout, run);
}

}  // namespace troupe::parallel
