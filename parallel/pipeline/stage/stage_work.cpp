#include "parallel/pipeline/stage/stage_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "actors/cell/call_inline.h"
#include "autograd/distributed/backward_meeting.h"
#include "autograd/distributed/context.h"
#include "autograd/split_pass.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/cpu/gemm/packed_weights.h"
#include "parallel/data/replica.h"
#include "parallel/data/replica_reducer.h"
#include "parallel/pipeline/stage/stage_method.h"
#include "parallel/pipeline/stage/stage_norms.h"
#include "parallel/pipeline/stage/stage_parameters.h"
#include "parallel/pipeline/stage/stage_sums.h"
#include "parallel/sharded/rank_bytes.h"
#include "parallel/tensor/meetings.h"

namespace troupe::parallel {
namespace {

// One micro-batch between its forward and the end of its backward.
struct Live {
  Tensors inputs;  // floating tensors of the input and the skips; leaves, unless nobody wants their gradients
  std::vector<size_t> parts;  // how many of them the input has, and each skip
  Tensors outputs;  // of the floating tensors of the output, and of the skips behind it: without_elements()
  Tensor loss;      // in their place, if there is one
  Tensors carried;  // of the floating tensors for the next slice: without_elements()
  std::unique_ptr<internal::autograd::SplitPass> rest;  // after the first part, if the second is not done
};

struct Step {
  uint64_t number = 0;
  // Each micro-batch has its own of these: what the slice after it takes, and the gradients of that.
  std::map<int64_t, Live> live;
  std::map<int64_t, Tensors> carried, carried_grads;
  int64_t micro_batches_done = 0;
  StageSums sums;
  std::unique_ptr<StepReduction> reduction;
  std::optional<Tensors> tied_before;  // gradients that tied parameters had in the context before this step
  // The first backward says these three: who else has the gradients, what they count for there, and how many
  // micro-batches there are.
  std::string replicas;
  double rows = 1;
  int64_t count = 0;
  std::shared_ptr<StageNorms> norms = std::make_shared<StageNorms>();
  std::shared_ptr<ops::PackedWeights> packed = std::make_shared<ops::PackedWeights>();
};

// By pipeline and stage.
using Steps = std::map<std::pair<uint64_t, int64_t>, Step>;

Steps& steps() { return internal::actors::current_cell()->keep<Steps>(); }

Step& step_of(const WorkId& id, bool record = true) {
  Step& step = steps()[{id.pipeline, id.stage}];
  if (step.number > id.step)
    throw_error(ErrorKind::cancelled,
                fmt::format("[pipeline] step {} is over: step {} has begun", id.step, step.number));
  if (step.number < id.step) {
    step.norms->end(false);
    step = {};
    step.number = id.step;
    record ? count_sent_from_here() : count_sent_up_to_here();
  }
  return step;
}

Live& live_of(const WorkId& id) {
  Step& step = step_of(id);
  const auto at = step.live.find(id.micro_batch);
  if (at == step.live.end())
    throw_invalid(
        fmt::format("[pipeline] stage {} has nothing recorded of micro-batch {}", id.stage, id.micro_batch));
  return at->second;
}

// What a backward pass begins at: history and shape, without the elements, which only the next stage needs.
Tensor without_elements(const Tensor& t) {
  if (t.is_leaf()) return t;
  Shape strides = t.shape();
  for (int i = 0; i < strides.rank(); ++i) strides[i] = 0;
  const Tensor out = zeros({}, t.options()).alias(t.shape(), strides, 0);
  out.set_grad_fn(t.grad_fn());
  return out;
}

Tensor loss_of(const ForwardOrder& order, const Value& result) {
  const auto* loss = result.get_if<Tensor>();
  if (!loss || !loss->defined() || loss->numel() != 1)
    throw_invalid(fmt::format("[pipeline] the loss {} of stage {} gave {}: expected a tensor of one element",
                              order.loss, order.id.stage, result.describe()));
  return *loss;
}

const internal::parallel::ReplicaReducer& replica_of(const std::string& key) {
  if (const auto* const found = reducer_of(key)) return *found;
  throw_invalid("[pipeline] the pipeline that made this actor one of several replicas has gone");
}

// Whether the next micro-batch goes on in the same sequence.
template <class Order>
bool has_next(const Order& order) {
  return order.carries && (order.id.micro_batch + 1) % order.slices != 0;
}
template <class Order>
bool has_previous(const Order& order) {
  return order.carries && order.id.micro_batch % order.slices != 0;
}

Tensors detached(Tensors all) {
  for (Tensor& t : all)
    if (t.defined()) t = t.detach();
  return all;
}

// What the slice before has left for this one.
Value carried_to(const ForwardOrder& order, Live& live) {
  Tensors all;
  if (has_previous(order)) {
    const auto at = step_of(order.id, order.record).carried.extract(order.id.micro_batch - 1);
    if (at.empty())
      throw_invalid(
          fmt::format("[pipeline] slice {} of a sequence came to stage {} before the one that it "
                      "follows",
                      order.id.micro_batch % order.slices, order.id.stage));
    all = at.mapped();
  }
  const size_t before = live.inputs.size();
  for (Tensor& t : all) {
    if (!is_floating(t.dtype())) continue;
    if (order.record) t.requires_grad_();
    live.inputs.push_back(t);
  }
  live.parts.push_back(live.inputs.size() - before);
  return internal::to_value(std::move(all));
}

Task<ForwardResult> forward(Actor& actor, ForwardOrder order) {
  if (!order.replicas.empty()) {  // after the step before, the parameters have the pieces of all
    const Future<void> gathered = replica_of(order.replicas)->gathered();
    co_await gathered;
    set_share(order.replicas, order.total);
  }
  if (order.meeting && frame().context) tp::MeetingsOfWorker::here("pipeline")->number_call(order.meeting);
  GradMode mode(order.record);
  const auto norms = step_of(order.id, order.record).norms;
  const auto packed = step_of(order.id, order.record).packed;
  std::optional<ops::PackedWeights::Use> use;
  if (order.packs) use.emplace(*packed);
  norms->begin(actor);
  Live live;
  const auto enter = [&](Value& part) {
    const size_t before = live.inputs.size();
    visit_tensors(part, [&](Tensor& t) {
      if (!t.defined() || !is_floating(t.dtype())) return;
      t = t.detach();
      if (order.record && !order.first) t.requires_grad_();
      live.inputs.push_back(t);
    });
    live.parts.push_back(live.inputs.size() - before);
  };
  enter(order.input);
  for (Value& skip : order.skips) enter(skip);
  if (order.carries) order.given.push_back(carried_to(order, live));
  Value output;
  if (order.record && order.recompute)
    output = run_recomputed(order, live.inputs, norms);
  else
    output = co_await internal::actors::call_inline(order.method, arguments(order));
  const Tensors carried = take_carried(order, output);
  ValueList skips = take_skips(order, output);
  if (!order.loss.empty()) {
    ValueList both{output, order.target};
    live.loss = loss_of(order, co_await internal::actors::call_inline(order.loss, std::move(both)));
  }
  const Tensor loss = live.loss.defined() ? live.loss.detach() : Tensor();
  if (has_next(order)) step_of(order.id, order.record).carried[order.id.micro_batch] = detached(carried);
  if (order.record) {
    for (const Tensor& t : carried)
      if (is_floating(t.dtype()) && has_next(order)) live.carried.push_back(without_elements(t));
    for (const Tensor& t : floating_of(output)) live.outputs.push_back(without_elements(t));
    for (Value& skip : skips)
      for (const Tensor& t : floating_of(skip)) live.outputs.push_back(without_elements(t));
    step_of(order.id, order.record).live[order.id.micro_batch] = std::move(live);
  }
  const auto leave = [](Tensor& t) {  // the graph ends here: the pipeline itself carries gradients on
    if (t.defined()) t = t.detach();
  };
  visit_tensors(output, leave);
  visit_tensors(skips, leave);
  co_return ForwardResult{loss.defined() ? Value() : std::move(output), loss, std::move(skips)};
}

// Brings the gradients of a micro-batch to the sums.
template <class F>
void add_to_sums(const WorkId& id, const F& run) {
  Step& step = step_of(id);
  if (!step.reduction || step.micro_batches_done + 1 < step.count) return run(step.sums);
  LastSums sums(step.sums, *step.reduction);
  run(sums);
}

// Of the graph that the actor has by itself, in one part.
Tensors whole_pass(const WorkId& id, Tensors roots, Tensors grads) {
  Step& step = step_of(id);
  const Live live = std::move(step.live.extract(id.micro_batch).mapped());
  const ops::PackedWeights::Use use(*step.packed);
  Tensors out;
  add_to_sums(id, [&](internal::autograd::Sink& sums) {
    InputsApart sink(live.inputs, sums);
    internal::autograd::run(internal::autograd::root_edges("backward", roots), std::move(grads), sink);
    out = std::move(sink.grads);
  });
  return out;
}

// Gradients of those inputs that want one, in the places of all.
Tensors in_places(Tensors got, const std::vector<uint8_t>& wants) {
  Tensors out(wants.size());
  auto next = got.begin();
  for (size_t i = 0; i < wants.size(); ++i)
    if (wants[i]) out[i] = std::move(*next++);
  return out;
}

// The first part of two.
Tensors first_part(const WorkId& id, Live& live, std::unique_ptr<internal::autograd::SplitPass> pass,
                   const Tensors& grads) {
  const ops::PackedWeights::Use use(*step_of(id).packed);
  live.rest = std::move(pass);
  live.outputs.clear(), live.loss = {}, live.inputs.clear(), live.carried.clear();
  return live.rest->inputs(grads);
}

// Passes that leave the actor bring gradients to the context. Those of ties have to be told from what was
// there before.
void set_tied_apart(Actor& actor, const BackwardOrder& order) {
  Step& step = step_of(order.id);
  if (order.tied.empty() || step.tied_before) return;
  step.tied_before.emplace();
  for (const std::string& name : order.tied)
    step.tied_before->push_back(autograd::exchange_context_gradient(parameter_of(actor, name), {}));
}

// The gradients of what it has carried to the next slice, which has run backward before.
void add_carried(const BackwardOrder& order, const Live& live, Tensors& roots, Tensors& grads) {
  if (!has_next(order)) return;
  const auto came = step_of(order.id).carried_grads.extract(order.id.micro_batch);
  if (came.empty())
    throw_invalid(
        fmt::format("[pipeline] slice {} of a sequence runs backward in stage {} before the one behind "
                    "it, whose gradients it needs",
                    order.id.micro_batch % order.slices, order.id.stage));
  for (size_t i = 0; i < live.carried.size(); ++i)
    if (live.carried[i].requires_grad() && came.mapped().at(i).defined()) {
      roots.push_back(live.carried[i]);
      grads.push_back(came.mapped()[i]);
    }
}

// A backward pass of a micro-batch begins at these tensors, with these gradients.
std::pair<Tensors, Tensors> entering(const BackwardOrder& order, const Live& live) {
  Tensors roots, grads;
  if (live.loss.defined()) {
    if (live.loss.requires_grad() && order.weight > 0) {  // else it has no gradients, not even NaN times 0
      roots.push_back(live.loss);
      grads.push_back(full_like(live.loss, order.weight));
    }
  } else {
    if (order.grads.size() != live.outputs.size())
      throw_invalid(fmt::format("[pipeline] {} gradients came for the {} floating tensors that stage {} gave",
                                order.grads.size(), live.outputs.size(), order.id.stage));
    for (size_t i = 0; i < live.outputs.size(); ++i)
      if (live.outputs[i].requires_grad() && order.grads[i].defined()) {
        roots.push_back(live.outputs[i]);
        grads.push_back(order.grads[i]);
      }
  }
  add_carried(order, live, roots, grads);
  return {std::move(roots), std::move(grads)};
}

// The first backward of a step agrees with the other replicas on what the last one brings them. Gradients of
// ties wait for other stages.
void meet_replicas(const BackwardOrder& order) {
  Step& step = step_of(order.id);
  if (order.replicas.empty() || step.count) return;
  step.replicas = order.replicas, step.rows = order.total, step.count = order.count;
  if (order.shares && order.tied.empty())
    step.reduction = replica_of(step.replicas).begin_step(order.id.step, step.rows);
}

// Gradients of a pass that leaves the actor, or waits. The last one of a step hands them on as they come;
// those of others wait for the sums.
Accumulation of_pass(const BackwardOrder& order) {
  const Step& step = step_of(order.id);
  const auto& replicas = replica_of(order.replicas);
  if (!step.reduction || step.micro_batches_done + 1 < step.count)
    return replicas.accumulate_rows(order.total);
  return replicas.hand_on([id = order.id](const Tensor& parameter, Tensor gradient) {
    Step& last = step_of(id);
    if (!last.reduction || !last.reduction->expects(parameter))
      throw_error(ErrorKind::failed, "[pipeline] a parameter has gradients of two passes at a time");
    last.reduction->told(parameter, last.sums.take(parameter), std::move(gradient));
  });
}

Task<Tensors> input_gradients(Actor& actor, BackwardOrder order) {
  Live& live = live_of(order.id);
  if (live.rest)
    throw_invalid(fmt::format("[pipeline] micro-batch {} of stage {} was run backward already",
                              order.id.micro_batch, order.id.stage));
  auto [roots, grads] = entering(order, live);
  const size_t live_inputs = live.inputs.size();
  if (roots.empty()) {
    if (order.whole) step_of(order.id).live.erase(order.id.micro_batch);
    co_return Tensors(live_inputs);
  }
  Tensors wanted;
  std::vector<uint8_t> wants;
  for (const Tensor& t : live.inputs) {
    wants.push_back(t.requires_grad());
    if (wants.back()) wanted.push_back(t);
  }
  auto pass = std::make_unique<internal::autograd::SplitPass>(roots, wanted);
  if (!pass->leaves_actor() && pass->waits() && !order.whole) {
    roots.clear();
    live = {};
    const auto passing = internal::autograd::first_part_meeting(*pass, grads, order.meeting);
    Tensors got = co_await passing;
    live_of(order.id).rest = std::move(pass);  // which the step has, unless it was given up meanwhile
    co_return in_places(std::move(got), wants);
  }
  if (!pass->leaves_actor() && !pass->waits()) {
    if (!order.whole) {
      roots.clear();
      co_return in_places(first_part(order.id, live, std::move(pass), grads), wants);
    }
    pass.reset();
    co_return whole_pass(order.id, std::move(roots), std::move(grads));
  }
  pass.reset();
  // The stage asks other actors: a pass of the context goes there, and cannot be put off in parts.
  Live whole = std::move(live);
  live = {};
  std::optional<Accumulation> replicas;
  if (!order.replicas.empty()) replicas.emplace(of_pass(order));
  set_tied_apart(actor, order);
  const auto passing = internal::autograd::backward_meeting(roots, grads, order.meeting);
  co_await passing;
  Tensors out;
  for (const Tensor& t : whole.inputs)
    out.push_back(t.requires_grad() ? autograd::exchange_context_gradient(t, {}) : Tensor());
  if (order.whole) step_of(order.id).live.erase(order.id.micro_batch);
  co_return out;
}

Task<std::vector<Tensors>> backward(Actor& actor, BackwardOrder order) {
  const std::vector<size_t> parts = live_of(order.id).parts;
  const WorkId id = order.id;
  const bool carries = order.carries, follows = has_previous(order), whole = order.whole;
  meet_replicas(order);
  const Tensors grads = co_await input_gradients(actor, std::move(order));
  if (whole) ++step_of(id).micro_batches_done;
  std::vector<Tensors> out;
  auto at = grads.begin();
  for (const size_t count : parts) {
    const auto end = at + static_cast<std::ptrdiff_t>(count);
    out.emplace_back(at, end);
    at = end;
  }
  if (follows) step_of(id).carried_grads[id.micro_batch - 1] = out.back();
  if (carries) out.pop_back();
  co_return out;
}

void weights(const WorkId& id) {
  Step& step = step_of(id);
  if (Live& live = live_of(id); live.rest)
    add_to_sums(id, [&](internal::autograd::Sink& sums) { live.rest->rest(sums); });
  step.live.erase(id.micro_batch);
  ++step.micro_batches_done;
}

// What passes of the step that left the actor have brought for a tied parameter.
Tensor taken_from_passes(const Step& step, size_t i, const Tensor& parameter) {
  if (!step.tied_before) return {};
  const Tensor own = autograd::exchange_context_gradient(parameter, step.tied_before->at(i));
  if (step.replicas.empty()) return own;
  const Tensor waiting = replica_of(step.replicas).take_waiting(parameter);
  return waiting.defined() ? ops::div(waiting, step.rows) : own;
}

Tensors sums_of(Actor& actor, const SumsOrder& order) {
  Step& step = step_of(order.id);
  Tensors out;
  for (size_t i = 0; i < order.names.size(); ++i) {
    const Tensor parameter = parameter_of(actor, order.names[i]);
    if (const Tensor came = taken_from_passes(step, i, parameter); came.defined())
      step.sums.accumulate(parameter, came);
    out.push_back(step.sums.of(parameter));
  }
  step.tied_before.reset();
  return out;
}

void end(const WorkId& id, bool keep) {
  const auto at = steps().find({id.pipeline, id.stage});
  if (at == steps().end() || at->second.number > id.step) return;
  at->second.norms->end(keep);
  steps().erase(at);
}

// Sums over replicas what has not gone to them by now.
Task<void> reduce(Step step, CommitOrder order) {
  const auto& replicas = replica_of(order.replicas);
  StageSums& sums = step.sums;
  if (!order.shares) {
    const auto reducing = replicas->reduce(std::move(sums.leaves), std::move(sums.grads), order.weight);
    co_return co_await reducing;
  }
  if (!step.reduction) step.reduction = replicas.begin_step(order.id.step, order.weight);
  if (!step.reduction) {
    const auto reducing =
        replicas.reduce_step(order.id.step, order.weight, std::move(sums.leaves), std::move(sums.grads));
    co_return co_await reducing;
  }
  // Replicas have no copies of these.
  Tensors leaves, grads;
  for (size_t i = 0; i < sums.leaves.size(); ++i)
    if (step.reduction->expects(sums.leaves[i]))
      step.reduction->told(sums.leaves[i], std::move(sums.grads[i]));
    else if (sums.grads[i].defined())
      leaves.push_back(sums.leaves[i]), grads.push_back(std::move(sums.grads[i]));
  const auto reducing = step.reduction->end();
  co_await reducing;
  if (!leaves.empty()) co_await autograd::context_backward(leaves, std::move(grads));
}

Task<void> commit(Actor& actor, CommitOrder order) {
  Step& step = step_of(order.id);
  for (size_t i = 0; i < order.names.size(); ++i)
    if (order.sums.at(i).defined()) step.sums.replace(parameter_of(actor, order.names[i]), order.sums[i]);
  step.norms->end(true);
  Step taken = std::move(step);
  steps().erase({order.id.pipeline, order.id.stage});
  if (!order.replicas.empty()) {
    const auto reducing = reduce(std::move(taken), std::move(order));
    co_return co_await reducing;
  }
  if (!taken.sums.leaves.empty())
    co_await autograd::context_backward(taken.sums.leaves, std::move(taken.sums.grads));
}

void drop(const WorkId& id) { end(id, false); }

}  // namespace

void install_pipeline(internal::actors::Worker& worker) {
  using internal::actors::serve;
  serve<kForward, forward>(worker);
  serve<kBackward, backward>(worker);
  serve<kWeights, weights>(worker);
  serve<kSums, sums_of>(worker);
  serve<kCommit, commit>(worker);
  serve<kDrop, drop>(worker);
  install_parameters(worker);
}

}  // namespace troupe::parallel
