#include "autograd/distributed/backward_task.h"

#include "autograd/engine.h"

namespace troupe::autograd {

void BackwardTask::run() {
  const GradMode mode(how().create_graph);  // of hooks, too
  if (phase == PassPhase::finish) {
    if (const auto batch = state->end_hook_batch(pass, cell.get())) batch->finish();
    for (const auto& [to, pair] : targets)
      if (pair != kRoots) send(to, pair, {});
    return;
  }
  if (options & kExact) return run_exact();
  autograd::run(roots, std::move(grads), *this, how());
}

void BackwardTask::run_exact() {
  if (phase == PassPhase::reach) return expect();
  const auto region = state->find_region(pass, cell.get());
  if (!region) throw_invalid("[backward] gradients came for a part that none were expected for");
  if (phase == PassPhase::want) return want(*region);
  supply(*region);
  if (region->done()) state->end_region(pass, cell.get());
}

void BackwardTask::expect() {
  const bool selects = (options & kSelect) != 0;
  Tensors inputs;  // asked for before the state is locked
  if (selects && (options & kInputs)) inputs = state->inputs(cell);
  const auto [region, made] = state->region(pass, cell.get(), [&] {
    return selects ? std::make_shared<ActorRegion>(how(), std::move(inputs))
                   : std::make_shared<ActorRegion>(how());
  });
  watched = made && !region->inputs().empty();
  for (Node* node : region->expect(roots)) {
    const auto& receive = dynamic_cast<ReceiveNode&>(*node);
    if (selects) state->note_exit(pass, receive.peer(), receive.pair(), {cell, node});
    send_back(*node, {});
  }
}

void BackwardTask::want(ActorRegion& region) {
  if (entered == kRoots && !exit && (options & kInputs) && targets.empty())
    throw_invalid(
        "[backward] only_inputs is set, but no actor that the pass came by has inputs in this context: call "
        "set_context_inputs() in one first");
  for (Node* node : exit ? region.want(exit) : region.wanted())
    if (auto* root = dynamic_cast<SendNode*>(node)) send(root->peer(), root->pair(), {});
  for (const auto& [to, pair] : targets)
    if (pair != kRoots) send(to, pair, {Value(true)});
}

void BackwardTask::supply(ActorRegion& region) {
  region.supply(roots, std::move(grads), *this);
  if (region.inputs().empty()) return;  // those of grad() are given back to its caller
  for (auto& [i, grad] : region.take_captured()) accumulate(region.inputs()[i], std::exchange(grad, {}));
}

void BackwardTask::settled(const Accumulate& leaf, bool came) {
  if (!is_watched(leaf)) return;
  const auto [batch, made] = state->hook_batch(pass, cell.get());
  watched |= made;
  batch->settled(leaf, came ? state->gradient(leaf.leaf()) : Tensor());
}

void BackwardTask::leave(Node& node, Tensors out) {
  out.resize(node.num_inputs());
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
  send(receive.peer(), receive.pair(), std::move(values));
}

void BackwardTask::send(WorkerId to, uint64_t pair, ValueList values) {
  send_held();
  held.emplace(Outgoing{{outbox.next_number(), to}, pair, std::move(values)});
}

void BackwardTask::send_held(std::optional<Report> report) {
  if (!held) return;
  Outgoing message = std::move(*held);
  held.reset();
  outbox.note(phase, message.to, context, message.values);
  // A recorded pass has its messages recorded, as calls are: the first part of what second derivatives need.
  // The last one leaves when the pass has let go of its mode.
  const GradMode mode(how().create_graph);
  if (auto why =
          message_of(phase).tell(outbox.worker(), message.to.to, pass, options, message.to.id, low_watermark,
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
    if (!send.node) throw_invalid("[backward] worker " + here + " has recorded no message of this number");
    cell = send.cell;
    entered = pair;
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
