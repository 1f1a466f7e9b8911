#include "autograd/distributed/backward_task.h"

#include <algorithm>

#include "autograd/distributed/group_gradients.h"
#include "autograd/region.h"
#include "autograd/waiting_step.h"

namespace troupe::autograd {
namespace {

// Hooks see this of a pass. It does not keep the context.
class GradientsInPass final : public PassGradients {
 public:
  GradientsInPass(const std::shared_ptr<ContextState>& state, uint64_t context, uint64_t pass)
      : state_(state), context_(context), pass_(pass) {}
  uint64_t context() const override { return context_; }
  uint64_t number() const override { return pass_; }
  Tensor total(const Tensor& leaf) const override { return state()->gradient(leaf); }
  Tensor take(const Tensor& leaf) override { return state()->take(pass_, leaf); }
  void add(const Tensor& leaf, Tensor grad) override {
    if (!leaf.is_leaf() || grad.shape() != leaf.shape() || grad.dtype() != leaf.dtype())
      throw_invalid("[backward] a hook cannot add " + grad.summary() + " to the gradient of " +
                    leaf.summary() + ": a gradient of the shape and dtype of a leaf is expected");
    state()->accumulate_kept(pass_, leaf, std::move(grad));
  }

 private:
  std::shared_ptr<ContextState> state() const {
    if (auto state = state_.lock()) return state;
    throw_error(ErrorKind::cancelled, "[backward] the context of the pass has ended");
  }
  const std::weak_ptr<ContextState> state_;
  const uint64_t context_, pass_;
};

std::string nothing_recorded(const std::string& worker, uint64_t pair) {
  if (!(pair & kPairOfGroup))
    return "[backward] worker " + worker + " has recorded no message of this number";
  return "[backward] a rank of worker " + worker +
         " has not recorded its part of an operation of a group, as the others have: all ranks call it in "
         "one "
         "autograd::Context, and all or none under NoGradGuard";
}

}  // namespace

void BackwardTask::run() {
  const GradMode mode(how().create_graph);  // of hooks, too
  if (came) {
    go_on();
  } else if (phase == PassPhase::finish) {
    if (const auto batch = state->end_hook_batch(pass, cell.get()))
      wait_for(batch->finish(std::make_shared<GradientsInPass>(state, context, pass)));
    for (const auto& [to, pair] : targets)
      if (pair != kRoots) send(phase, to, pair, {});
  } else if (options & kExact) {
    run_exact();
  } else {
    run_fast();
  }
  go_on_with_ready();
  if (region && (options & kExact) && phase == PassPhase::gradient && region->done())
    state->end_region(pass, cell.get());
}

void BackwardTask::run_fast() {
  if (!region) {
    region = std::make_shared<ActorRegion>(how());
    region->expect(roots);
  }
  region->supply(roots, std::move(grads), *this);
}

void BackwardTask::run_exact() {
  if (phase == PassPhase::reach) return expect();
  region = state->find_region(pass, cell.get());
  if (!region) throw_invalid("[backward] gradients came for a part that none were expected for");
  if (phase == PassPhase::want) return want();
  region->supply(roots, std::move(grads), *this, turn);
  take_captured();
}

void BackwardTask::later(Node& node, Tensors out, uint32_t number) {
  waiting.push_back({dynamic_cast<internal::autograd::WaitingRule&>(node).begin(std::move(out), meeting()),
                     number, Ref<Node>(&node)});
  if (!waiting.back().result.valid())
    throw_invalid("[backward] " + node.name() + " gave an empty future for its gradients");
}

void BackwardTask::wait_for(std::vector<Future<void>> hooks) {
  for (const Future<void>& hook : hooks) waiting.push_back({hook.then([] { return Tensors(); }), {}});
}

// Results that are there go on in this task.
void BackwardTask::go_on_with_ready() {
  const auto ready = [](const Waiting& w) { return w.result.is_ready(); };
  for (auto at = waiting.begin();
       (at = std::find_if(waiting.begin(), waiting.end(), ready)) != waiting.end();) {
    came = *at->result.peek();
    ticket = at->ticket;
    waiting.erase(at);
    go_on();
  }
}

void BackwardTask::go_on() {
  if (state->dropped(pass)) throw_error(ErrorKind::cancelled, "[backward] the pass has failed elsewhere");
  Tensors out = std::exchange(came, {})->value();  // throws
  if (!ticket) return;
  region->resume(*ticket, std::move(out), *this);
  take_captured();
}

std::shared_ptr<BackwardTask> BackwardTask::next_of(const Waiting& of) {
  TaskHead head = *this;
  head.message = outbox.next_number();
  sent.push_back({head.message, outbox.worker().id()});
  auto next = std::make_shared<BackwardTask>(outbox, head, state);
  next->cell = cell;
  next->entered = entered;
  next->turn = turn;
  next->where = where;
  next->region = region;
  next->ticket = of.ticket;
  return next;
}

void BackwardTask::expect() {
  const bool selects = (options & kSelect) != 0;
  Tensors inputs;  // asked for before the state is locked
  if (selects && (options & kInputs)) inputs = state->inputs(cell);
  bool made;
  std::tie(region, made) = state->region(pass, cell.get(), [&] {
    return selects ? std::make_shared<ActorRegion>(how(), std::move(inputs))
                   : std::make_shared<ActorRegion>(how());
  });
  watched = made && !region->inputs().empty();
  for (Node* node : region->expect(roots, turn)) {
    const auto& receive = dynamic_cast<ReceiveNode&>(*node);
    if (selects) state->note_exit(pass, receive.peer(), receive.pair(), {cell, node});
    send_back(*node, {});
  }
  // A step that waits is wanted whatever the inputs. Of what else is, the next wave tells.
  if (!selects || roots.empty() || !region->has_waiting_steps() || !region->leads_on(roots[0])) return;
  if (auto* root = dynamic_cast<SendNode*>(roots[0].node.get()))
    send(PassPhase::want, root->peer(), root->pair(), {});
}

void BackwardTask::want() {
  if (entered == kRoots && !exit && (options & kInputs) && targets.empty())
    throw_invalid(
        "[backward] only_inputs is set, but no actor that the pass came by has inputs in this context: call "
        "set_context_inputs() in one first");
  for (Node* node : exit ? region->want(exit) : region->wanted())
    if (auto* root = dynamic_cast<SendNode*>(node)) send(phase, root->peer(), root->pair(), {});
  for (const auto& [to, pair] : targets)
    if (pair != kRoots) send(phase, to, pair, {Value(true)});
}

void BackwardTask::take_captured() {
  if (region->inputs().empty()) return;  // those of grad() are given back to its caller
  for (auto& [i, grad] : region->take_captured()) accumulate(region->inputs()[i], std::exchange(grad, {}));
}

void BackwardTask::settled(const Accumulate& leaf, bool added) {
  if (!internal::autograd::is_watched(leaf)) return;
  const auto [batch, made] = state->hook_batch(pass, cell.get());
  watched |= made;
  std::function<Tensor()> total;
  if (added) total = [&] { return state->gradient(leaf.leaf()); };
  batch->settled(leaf, total, std::make_shared<GradientsInPass>(state, context, pass));
}

void BackwardTask::leave(Node& node, Tensors out) {
  const bool none = std::none_of(out.begin(), out.end(), [](const Tensor& g) { return g.defined(); });
  out.resize(node.num_inputs());
  if (none && !(options & kExact) && dynamic_cast<ReceiveNode&>(node).context() != context) return;
  ValueList values;
  for (auto& g : out) values.push_back(g.defined() ? Value(std::move(g)) : Value());
  send_back(node, std::move(values));
}

void BackwardTask::send_back(Node& node, ValueList values) {
  auto& receive = dynamic_cast<ReceiveNode&>(node);
  if (receive.context() != context)
    throw_invalid(
        "[backward] the graph leads into another autograd context: a tensor received in one context was "
        "used in a loss of another; detach() it");
  if ((receive.pair() & kPairOfGroup) && meeting() != pass)
    throw_error(ErrorKind::unimplemented,
                "[backward] gradients of operations of groups go in one pass of all ranks, and stages of a "
                "pipeline have passes of their own: use the conversions of tensor parallelism in them");
  send(phase, receive.peer(), receive.pair(), std::move(values));
}

void BackwardTask::send(PassPhase as, WorkerId to, uint64_t pair, ValueList values) {
  send_held();
  held.emplace(Outgoing{as, {outbox.next_number(), to}, pair, std::move(values)});
}

void BackwardTask::send_held(std::optional<Report> report) {
  if (!held) return;
  Outgoing message = std::move(*held);
  held.reset();
  outbox.note(message.phase, message.to, context, message.values);
  // A recorded pass has its messages recorded, as calls are: the first part of what second derivatives need.
  // The last one leaves when the pass has let go of its mode.
  const GradMode mode(how().create_graph);
  if (auto why = message_of(message.phase)
                     .tell(outbox.worker(), message.to.to, pass, options, message.to.id, low_watermark,
                           message.pair, std::move(message.values), std::move(report)))
    throw std::move(*why);
  sent.push_back(message.to);
}

std::vector<SentGrad> BackwardTask::led_to() const {
  std::vector<SentGrad> all = sent;
  if (held) all.push_back(held->to);
  return all;
}

Report BackwardTask::report() const {
  Report report{message, {}, watched ? entered : 0};
  for (const auto& c : led_to()) std::get<1>(report).emplace_back(c.id, c.to);
  return report;
}

// What a message of worker `from` asks for, checked.
void BackwardTask::enter(WorkerId from, uint64_t pair, ValueList values) {
  const std::string& here = outbox.worker().name();
  if (state->dropped(pass)) throw_error(ErrorKind::cancelled, "[backward] the pass has failed elsewhere");
  state->commit(low_watermark);
  if (phase == PassPhase::want && values.empty()) {
    const ContextState::Exit found = state->find_exit(pass, from, pair);
    if (!found.node) throw_invalid("[grad] worker " + here + " sends no gradients for this number");
    exit = found.node;
    cell = found.cell;
  } else {
    const ContextState::Send send = state->find_send(pair);
    if (!send.node) throw_invalid(nothing_recorded(here, pair));
    cell = send.cell;
    entered = pair;
    turn = send.turn ? send.turn : pair;
    const size_t count = send.node->tensors().size();
    for (uint32_t i = 0; i < count && phase != PassPhase::finish && phase != PassPhase::want; ++i)
      roots.push_back({send.node, i});
    if (phase == PassPhase::gradient) take_grads(*send.node, std::move(values));
  }
  where = "backward on " + (cell ? cell->place() : here);
}

void BackwardTask::take_grads(const SendNode& node, ValueList values) {
  const auto& tensors = node.tensors();
  if (values.size() != tensors.size())
    throw_invalid("[backward] a message with " + std::to_string(values.size()) + " gradients, expected " +
                  std::to_string(tensors.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    grads.push_back(internal::from_value<Tensor>(std::move(values[i])));
    const auto& [dtype, shape] = tensors[i];
    const Tensor& g = grads.back();
    if (g.defined() && (g.dtype() != dtype || g.shape() != shape))
      throw_invalid("[backward] gradient of a " + std::string(name(dtype)) + " " + shape.str() + " came as " +
                    g.summary());
  }
}

}  // namespace troupe::autograd
