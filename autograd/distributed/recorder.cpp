#include "autograd/distributed/recorder.h"

#include "autograd/distributed/joint_results.h"
#include "autograd/distributed/messages.h"
#include "core/graph/saved_tensor.h"
#include "rref/joint_call.h"

namespace troupe::autograd {
namespace {

// ReceiveNode::turn(): answers are in the order of their calls, other messages below them.
constexpr uint64_t kAnswers = uint64_t{1} << 62;

// The pass whose gradients the message brings; 0: it is another call.
uint64_t pass_of(const internal::net::Call& call) {
  if (call.method != kBackward.method || call.target.number != 0) return 0;
  const auto* pass = call.args.empty() ? nullptr : call.args[0].get_if<int64_t>();
  return pass ? static_cast<uint64_t>(*pass) : 0;
}

}  // namespace

internal::net::GradLink Recorder::record_send(uint64_t context, WorkerId to, WorkerId asked_by,
                                              const std::vector<Tensor*>& tensors,
                                              const std::vector<uint32_t>& indices, ContextState::Send send,
                                              const char* what) {
  if (!context)
    throw_invalid("[autograd] " + std::string(what) + " (" + tensors[0]->summary() +
                  ") needs gradients, but no autograd::Context "
                  "is active: make the call inside one, under NoGradGuard, or detach() the tensor");
  auto state = contexts_.join(context, asked_by);
  Edges edges;
  std::vector<std::pair<DType, Shape>> kinds;
  for (Tensor* t : tensors) {
    edges.push_back(t->gradient_edge());
    kinds.emplace_back(t->dtype(), t->shape());
  }
  const uint64_t pair = ++last_pair_;
  send.node = make_ref<SendNode>(to, pair, std::move(edges), std::move(kinds), send_nodes_);
  const bool shared = state->add_send(pair, std::move(send));
  if (to != worker_.id()) state->add_peer(to);
  return {pair, indices, shared};
}

void Recorder::add_send(ContextState& state, uint64_t pair, WorkerId to, Edges edges,
                        std::vector<std::pair<DType, Shape>> tensors,
                        std::shared_ptr<internal::actors::ActorCell> cell) {
  auto node = make_ref<SendNode>(to, pair, std::move(edges), std::move(tensors), send_nodes_);
  state.add_send(pair, {.node = std::move(node), .cell = std::move(cell), .turn = ++last_pair_});
  if (to != worker_.id()) state.add_peer(to);
}

Ref<ReceiveNode> Recorder::new_receive(ContextState& state, uint64_t context, uint64_t pair, WorkerId from,
                                       uint64_t turn, uint32_t tensors) {
  if (from != worker_.id()) state.add_peer(from);
  return make_ref<ReceiveNode>(from, context, pair, turn, tensors, receive_nodes_);
}

// Tensors that leave keep no history on the way: the receiver attaches its own. (To another worker only
// elements travel; a call within the worker would share the tensor itself.) `asked_by`: who has called for
// them in this context, and so knows of this worker; or nobody.
template <class Tree>
internal::net::GradLink Recorder::send_tensors(uint64_t context, WorkerId to, WorkerId asked_by, Tree& values,
                                               ContextState::Send send, const char* what) {
  std::vector<Tensor*> tensors, all;
  std::vector<uint32_t> indices;
  uint32_t index = 0;
  visit_tensors(values, [&](Tensor& t) {
    if (t.defined() && t.requires_grad()) {
      all.push_back(&t);
      if (grad_enabled()) tensors.push_back(&t), indices.push_back(index);
    }
    ++index;
  });
  internal::net::GradLink link;
  if (!tensors.empty()) link = record_send(context, to, asked_by, tensors, indices, std::move(send), what);
  if (to == worker_.id())
    for (Tensor* t : all) *t = t->detach();
  return link;
}

template <class Tree>
Ref<ReceiveNode> Recorder::receive_tensors(uint64_t context, WorkerId from, uint64_t turn,
                                           const internal::net::GradLink& link, Tree& values) {
  if (!context) throw_invalid("[autograd] a message with gradients outside any context");
  auto state = contexts_.join(context, from);
  if (from != worker_.id()) state->add_peer(from);
  if (link.shared) state->note_shared();
  std::vector<Tensor*> tensors;
  visit_tensors(values, [&](Tensor& t) { tensors.push_back(&t); });
  const auto count = static_cast<uint32_t>(link.tensors.size());
  auto node = make_ref<ReceiveNode>(from, context, link.pair, turn, count, receive_nodes_);
  for (uint32_t i = 0; i < count; ++i) {
    if (link.tensors[i] >= tensors.size() || !is_floating(tensors[link.tensors[i]]->dtype()))
      throw_invalid("[autograd] a message names a tensor for gradients that it does not have");
    if (i && link.tensors[i] <= link.tensors[i - 1])
      throw_invalid("[autograd] a message names a tensor for gradients twice, or out of order");
    tensors[link.tensors[i]]->set_grad_fn({node, i});
  }
  return node;
}

void Recorder::drop_send(uint64_t context, const internal::net::GradLink& link) {
  if (!link.pair) return;
  if (auto state = contexts_.find(context)) state->drop_send(link.pair);
}

void Recorder::outgoing_call(const internal::actors::CallerState& caller, internal::net::Call& call) {
  if (call.context && grad_enabled() && TensorStore::current())
    throw_error(
        ErrorKind::unimplemented,
        "[checkpoint] a remote call inside a checkpointed function would be made again by the backward pass: "
        "use checkpoint() inside the called method, or make the call under NoGradGuard");
  call.link = send_tensors(call.context, caller.to, kNoWorker, call.args,
                           {.cell = caller.cell, .pass = pass_of(call)}, "an argument");
  // The callee may make state of the context even if nothing here needs gradients.
  if (!call.link.pair && call.context && caller.to != worker_.id())
    if (auto state = contexts_.find(call.context)) state->add_peer(caller.to);
}

void Recorder::call_not_sent(internal::net::Call& call) { drop_send(call.context, call.link); }

void Recorder::incoming_call(internal::actors::Invocation& invocation) {
  auto& call = invocation.call();
  if (!call.link.pair) return;
  // A message of gradients has the turn of the send node that it is for.
  const auto* answered = pass_of(call) && call.args.size() > 4 ? call.args[4].get_if<int64_t>() : nullptr;
  const uint64_t turn = answered ? static_cast<uint64_t>(*answered) : ++last_call_;
  receive_tensors(call.context, invocation.from(), turn, call.link, call.args);
}

void Recorder::outgoing_reply(internal::actors::Invocation& invocation, internal::net::Reply& reply) {
  if (!reply.result.ok()) return;
  Value& value = reply.result.value();  // stays where it is: others undo, should this throw
  GradMode mode(invocation.call().grad_enabled);
  reply.link = send_tensors(invocation.call().context, invocation.from(), invocation.from(), value,
                            {.cell = invocation.cell()}, "the result");
  if (invocation.call().joint && reply.link.pair)
    if (const auto send = contexts_.join(invocation.call().context)->find_send(reply.link.pair); send.node)
      reply.link.waits = waits_behind(send.node->next());
}

void Recorder::reply_not_sent(internal::actors::Invocation& invocation, internal::net::Reply& reply) {
  drop_send(invocation.call().context, reply.link);
}

void Recorder::incoming_reply(const internal::actors::CallerState& caller, internal::net::Reply& reply) {
  if (!reply.result.ok() || !reply.link.pair) return;
  Value& value = reply.result.value();
  const Ref<ReceiveNode> node =
      receive_tensors(caller.context, caller.to, kAnswers | reply.id, reply.link, value);
  if (!caller.joint || reply.link.waits.empty()) return;
  const bool all = internal::rref::JointNumber::of(caller.joint).all;  // else methods are counted apart
  contexts_.join(caller.context)
      ->keep<JointResults>([] { return std::make_shared<JointResults>(); })
      ->add(caller.joint, all ? "" : caller.label, reply.link.waits, *node,
            caller.label + " on " + worker_.members().name_of(caller.to));
}

}  // namespace troupe::autograd
