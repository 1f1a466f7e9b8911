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

// Whether gradients of parameters are computed by themselves.
bool puts_off(const std::string& schedule) { return schedule.starts_with("zb") || schedule == "dualpipe-v"; }

// Times of a layout's step.
class StepFormulas {
 public:
  explicit StepFormulas(const CutModel& model)
      : model_(model),
        layout_(model.layout()),
        has_free_cores_(model.profile().cores > model.workers().most_on_a_machine()),
        cuts_passes_(model.layout().pp > 1 && puts_off(model.layout().schedule)) {}

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
    const bool under = !waits && has_free_cores_;
    const BucketSizes sizes;
    auto limit = static_cast<double>(sizes.first);
    double left = 0, bucket = 0;
    for (size_t i = model_.begin(s); i < model_.end(s); ++i) left += under ? last_pass(replica, s, i) : 0;
    double end = -left;
    double known = 0, takes = 0;  // buckets are mostly of one size
    const auto sends = [&](double bytes, double at) {
      if (bytes != known) known = bytes, takes = model_.over_replicas(c, bytes, s);
      end = std::max(end, at) + takes;
      bucket = 0, limit = static_cast<double>(sizes.others);
    };
    // Parameters of a layer come one after the other, each as a whole.
    for (size_t i = model_.end(s); i-- > model_.begin(s);) {
      const double bytes = model_.parameters_of(model_.layer(i));
      const double pass = under ? last_pass(replica, s, i) : 0;
      const double largest = model_.largest_of(model_.layer(i));
      double come = 0;
      for (double step = 0; bytes - come >= (step = std::max(limit - bucket, largest));) {
        come += step;
        sends(bucket + step, -left + pass * come / bytes);
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
  // Each part is gathered under the one before it; the first under nothing.
  void add_gathers(size_t s, StageTimes& t) const {
    double gather = 0, first = 0;
    for (size_t i = model_.begin(s); i < model_.end(s); ++i) {
      const double took =
          model_.over_replicas(Collective::all_gather, model_.parameters_of(model_.layer(i)), s);
      gather += took;
      if (i == model_.begin(s)) first = took;
    }
    const auto shown = [&](double computing) {
      return has_free_cores_ ? std::max(first, gather - computing) : gather;
    };
    if (layout_.reduce == Per::use) t.weight += gather;
    if (layout_.gather == Per::use) t.forward += shown(t.forward), t.input += shown(t.input + t.weight);
  }

  const CutModel& model_;
  const PlannedLayout& layout_;
  const bool has_free_cores_;  // then sums lie under passes
  const bool cuts_passes_;     // the schedule puts off gradients of parameters
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
  /// The pass has come by so many bytes of parameters, of which one has `largest`; `last`: by all. Gives the
  /// most that there is by then.
  double come_by(double parameters, double largest, bool last) {
    if (!several_ || by_parts_ || in_context_) whole_ += parameters;
    bucket_ += parameters;
    if (!sends_) return there();
    double most = there();
    while (bucket_ > 0 && (by_parts_ || last || bucket_ >= limit_))
      most = std::max(most, send(by_parts_ ? bucket_ : std::min(bucket_, std::max(limit_, largest))));
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

// Memory of a stage, while a micro-batch goes back through it.
LayoutCost memory_in_pass(const CutModel& model, int64_t replica, size_t s, int live) {
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
      note(coming.come_by(model.parameters_of(l), model.largest_of(l), i == model.begin(s)),
           others + std::max(0.0, left) * rows);
    }
  }
  return m;
}

// Activations of a micro-batch that a stage keeps until it goes back.
double kept_by_stage(const CutModel& model, int64_t replica, size_t s) {
  const bool input = model.layout().checkpoint != Checkpoint::never;
  double bytes = input && s ? model.layer(model.begin(s) - 1).output : 0;
  for (size_t i = model.begin(s); !input && i < model.end(s); ++i)
    bytes += model.layer(i).saved * model.part(model.layer(i), model.layer(i).saved_divided);
  return bytes * model.rows(replica);
}

// The moment at which a worker keeps most: one of its stages goes back.
struct Fullest {
  std::vector<int> live;  // micro-batches of each of its stages
  size_t back = 0;
  std::vector<double> gradients = {0};  // that each has while others go back
};
std::vector<Fullest> fullest_moments(const CutModel& model) {
  const PlannedLayout& layout = model.layout();
  // An interleaved schedule repeats itself with as many micro-batches as workers.
  const int64_t m =
      layout.schedule == "interleaved" ? std::min(layout.micro_batches, 4 * layout.pp) : layout.micro_batches;
  PlannedLayout some = layout;
  some.micro_batches = m;
  const auto table = std::get<Schedule>(policy_of(some));
  std::vector<Fullest> all(model.columns());
  for (size_t w = 0; w < all.size(); ++w) {
    std::vector<int> live(static_cast<size_t>(layout.chunks), 0);
    std::vector<double> kept, gradients(live.size(), 0);
    for (size_t c = 0; c < model.chunks(); ++c) kept.push_back(kept_by_stage(model, 0, model.stage(w, c)));
    double bytes = 0, most = -1;
    for (const Action& a : table.rows[w]) {
      const auto c = static_cast<size_t>(a.chunk);
      if (a.work == Work::forward) ++live[c], bytes += kept[c];
      if (a.work != Work::backward && a.work != Work::weight) continue;
      if (bytes > most) most = bytes, all[w] = {live, c, gradients};
      --live[c], bytes -= kept[c];
      if (gradients[c] > 0) continue;
      gradients[c] = ComingGradients(model, model.stage(w, c), false).there();
      bytes += gradients[c];
    }
  }
  return all;
}

LayoutCost memory_of_worker(const CutModel& model, int64_t replica, size_t w, const Fullest& full) {
  const PlannedLayout& layout = model.layout();
  LayoutCost sum;
  double in_optimizer = 0;
  for (size_t c = 0; c < full.live.size(); ++c) {
    const size_t s = model.stage(w, c);
    in_optimizer += ComingGradients(model, s, layout.micro_batches == 1).in_optimizer();
    LayoutCost m = memory_in_pass(model, replica, s, full.live[c]);
    if (c != full.back) {
      m.gradient_bytes = full.gradients[c], m.activations = full.live[c] * kept_by_stage(model, replica, s);
      if (layout.shard == Shard::all && layout.gather == Per::use)
        m.parameters = model.parameters(s) / model.replicas();
    }
    sum.before = m.before, sum.parameters += m.parameters, sum.state += m.state;
    sum.gradient_bytes += m.gradient_bytes, sum.activations += m.activations;
  }
  if (in_optimizer > sum.gradient_bytes + sum.activations)
    sum.gradient_bytes = in_optimizer, sum.activations = 0;
  sum.memory = sum.before + sum.parameters + sum.gradient_bytes + sum.state + sum.activations;
  return sum;
}

// Whether a replica keeps as much as the one before it: it has as many rows, on workers that had as much.
bool keeps_as_the_last(const CutModel& model, int64_t replica) {
  if (replica == 0 || model.rows(replica) != model.rows(replica - 1)) return false;
  const size_t each = model.columns() * static_cast<size_t>(model.layout().ranks());
  const size_t first = model.worker(replica, 0, 0);
  for (size_t w = first; w < first + each; ++w)
    if (model.workers().before(w) != model.workers().before(w - each)) return false;
  return true;
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
  const auto is_away = [&](size_t other) {
    return model.worker(replica, s, 0) != model.worker(replica, other, 0);
  };
  if (s + 1 < model.stages() && is_away(s + 1)) bytes += model.layer(model.end(s) - 1).output * rows * uses;
  if (s > 0 && is_away(s - 1)) bytes += model.layer(model.begin(s) - 1).output * rows * uses;
  return bytes;
}

}  // namespace

double least_step(const ModelProfile& profile, const PlannedWorkers& workers, const PlannedLayout& layout) {
  const CutModel model(profile, workers, layout);
  const StepFormulas f(model);
  double most = 0;
  for (size_t w = 0; w < model.columns(); ++w) {
    double work = 0, summed = f.summed(0, w);
    for (size_t c = 0; c < model.chunks(); ++c) {
      const size_t s = model.stage(w, c);
      const StageTimes t = f.stage(0, s).alone;
      work +=
          model.micro_batches() * (t.forward + t.input + t.weight) + f.optimizer(0, s) + f.gathered_after(s);
      if (c > 0) summed = std::min(summed, f.summed(0, s));
    }
    most = std::max(most, work + summed);
  }
  return most;
}

LayoutCost memory_of(const ModelProfile& profile, const PlannedWorkers& workers, const PlannedLayout& layout,
                     const std::vector<int>& live) {
  const CutModel model(profile, workers, layout);
  LayoutCost most;
  const auto full = layout.chunks > 1 ? fullest_moments(model) : std::vector<Fullest>();
  for (int64_t d = 0; d < layout.dp; ++d) {
    if (keeps_as_the_last(model, d)) continue;
    for (size_t w = 0; w < model.columns(); ++w) {
      const LayoutCost m = memory_of_worker(model, d, w, full.empty() ? Fullest{{live.at(w)}} : full[w]);
      if (m.memory > most.memory) most = m, most.worker = model.worker(d, w, 0);
    }
  }
  return most;
}

namespace {

// The workers of a replica. Those of the others do the same as these, more or less.
SharedProcessors processors_of(const CutModel& model, int64_t replica) {
  SharedProcessors shared{.all = model.workers().timed_together()};
  std::set<size_t> own;
  for (size_t w = 0; w < model.columns(); ++w) {
    const size_t machine = model.workers().machine(model.worker(replica, w, 0));
    shared.machine.push_back(static_cast<int>(machine)), own.insert(machine);
  }
  double there = 0;
  for (size_t w = 0; w < static_cast<size_t>(model.layout().workers()); ++w)
    if (own.contains(model.workers().machine(w))) ++there;
  shared.like = there / static_cast<double>(model.columns());
  return shared;
}

// The step of one replica, whose stages take these.
LayoutCost cost_of_replica(const CutModel& model, int64_t replica,
                           const std::vector<StepFormulas::StageCost>& stages, const Simulation& run) {
  const StepFormulas f(model);
  std::vector<double> end(stages.size(), 0);  // of the last backward pass
  for (const auto& e : run.events) {
    double& last = end[model.stage(static_cast<size_t>(e.worker), static_cast<size_t>(e.action.chunk))];
    if (e.action.work != Work::forward) last = std::max(last, e.end);
  }
  LayoutCost cost;
  size_t last = 0;
  for (size_t w = 0; w < model.columns(); ++w) {
    double passed = 0, summed = 0, optimizer = 0, gathered = 0, sums = 0, sent = 0;  // of all its stages
    for (size_t c = 0; c < model.chunks(); ++c) {
      const size_t s = model.stage(w, c);
      passed = std::max(passed, end[s]), summed = std::max(summed, end[s] + f.summed(replica, s));
      optimizer += f.optimizer(replica, s), gathered += f.gathered_after(s);
      const StageTimes& t = stages[s].times;
      sums += model.micro_batches() * (t.forward + t.input + t.weight - stages[s].compute);
      sent += sent_by_stage(model, replica, s);
    }
    cost.sent = std::max(cost.sent, sent);
    if (summed + optimizer + gathered <= cost.step) continue;
    cost.step = summed + optimizer + gathered, last = w;
    cost.sums = sums, cost.optimizer = optimizer, cost.gradients = summed - passed + gathered;
  }
  cost.compute = run.busy[last] - cost.sums;
  cost.bubble = std::max(0.0, cost.step - cost.compute - cost.sums - cost.optimizer - cost.gradients);
  return cost;
}

}  // namespace

LayoutCost cost_of(const ModelProfile& profile, const PlannedWorkers& workers, const PlannedLayout& layout,
                   Simulation& simulated) {
  const CutModel model(profile, workers, layout);
  const StepFormulas f(model);
  const Policy policy = policy_of(layout);
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
    if (std::ranges::all_of(profile.layers,
                            [](const LayerCost& l) { return std::min(l.alone, l.alone_few) >= 1; }))
      shared = {};
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
