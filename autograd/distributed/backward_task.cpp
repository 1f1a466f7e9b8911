#include "autograd/distributed/backward_task.h"

#include "autograd/engine.h"

namespace troupe::autograd {

void DistEngine::BackwardTask::run() {
  const GradMode mode(how().create_graph);  // of hooks, too
  if (kind == Kind::finish) {
    if (const auto batch = state->end_hook_batch(pass, cell.get())) batch->finish();
    for (const auto& [to, pair] : targets)
      if (pair != kRoots) send(to, pair, {});
    return;
  }
  if (options & kExact) return run_exact();
  autograd::run(roots, std::move(grads), *this, how());
}

void DistEngine::BackwardTask::run_exact() {
  if (kind == Kind::reach) return expect();
  const auto region = state->find_region(pass, cell.get());
  if (!region) throw_invalid("[backward] gradients came for a part that none were expected for");
  if (kind == Kind::want) return want(*region);
  supply(*region);
  if (region->done()) state->end_region(pass, cell.get());
}

void DistEngine::BackwardTask::expect() {
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

void DistEngine::BackwardTask::want(ActorRegion& region) {
  if (entered == kRoots && !exit && (options & kInputs) && targets.empty())
    throw_invalid(
        "[backward] only_inputs is set, but no actor that the pass came by has inputs in this context: call "
        "set_context_inputs() in one first");
  for (Node* node : exit ? region.want(exit) : region.wanted())
    if (auto* root = dynamic_cast<SendNode*>(node)) send(root->peer(), root->pair(), {});
  for (const auto& [to, pair] : targets)
    if (pair != kRoots) send(to, pair, {Value(true)});
}

void DistEngine::BackwardTask::supply(ActorRegion& region) {
  region.supply(roots, std::move(grads), *this);
  if (region.inputs().empty()) return;  // those of grad() are given back to its caller
  for (auto& [i, grad] : region.take_captured()) accumulate(region.inputs()[i], std::exchange(grad, {}));
}

void DistEngine::BackwardTask::settled(const Accumulate& leaf, bool came) {
  if (!is_watched(leaf)) return;
  const auto [batch, made] = state->hook_batch(pass, cell.get());
  watched |= made;
  batch->settled(leaf, came ? state->gradient(leaf.leaf()) : Tensor());
}

void DistEngine::BackwardTask::leave(Node& node, Tensors out) {
  out.resize(node.num_inputs());
  ValueList values;
  for (auto& g : out) values.push_back(g.defined() ? Value(std::move(g)) : Value());
  send_back(node, std::move(values));
}

void DistEngine::BackwardTask::send_back(Node& node, ValueList values) {
  auto& receive = dynamic_cast<ReceiveNode&>(node);
  if (receive.context() != context)
    throw_invalid(
        "[backward] the graph leads into another autograd context: a tensor received in one context was "
        "used in a loss of another; detach() it");
  send(receive.peer(), receive.pair(), std::move(values));
}

void DistEngine::BackwardTask::send(WorkerId to, uint64_t pair, ValueList values) {
  send_held();
  held.emplace(Outgoing{{engine.next_message(), to}, pair, std::move(values)});
}

void DistEngine::BackwardTask::send_held(std::optional<Report> report) {
  if (!held) return;
  Outgoing message = std::move(*held);
  held.reset();
  ++engine.sent_[static_cast<size_t>(kind)];
  // A recorded pass has its messages recorded, as calls are: the first part of what second derivatives need.
  // The last one leaves when the pass has let go of its mode.
  const GradMode mode(how().create_graph);
  if (engine.profiler_ && engine.profiler_->on())
    engine.profiler_->message(true, message_of(kind).name, message.to.to, message.to.id, context,
                              message.values);
  if (auto why =
          message_of(kind).tell(engine.worker_, message.to.to, pass, options, message.to.id, low_watermark,
                                message.pair, std::move(message.values), std::move(report)))
    throw std::move(*why);
  sent.push_back(message.to);
}

std::vector<SentGrad> DistEngine::BackwardTask::led_to() const {
  std::vector<SentGrad> all = sent;
  if (held) all.push_back(held->to);
  return all;
}

DistEngine::Report DistEngine::BackwardTask::report() const {
  Report report{message, {}, watched ? entered : 0};
  for (const auto& c : led_to()) std::get<1>(report).emplace_back(c.id, c.to);
  return report;
}

void DistEngine::on_message(Kind kind, internal::actors::Invocation& call, uint64_t pass, int64_t options,
                            uint64_t message, uint64_t low_watermark, uint64_t pair, ValueList values,
                            const std::optional<Report>& report) {
  const uint64_t context = call.call().context;
  if (profiler_ && profiler_->on())
    profiler_->message(false, message_of(kind).name, call.from(), message, context, values);
  if (report) note_report(context, pass, call.from(), *report, {});
  auto part = std::make_shared<BackwardTask>(*this, context, find_state(context));
  part->pass = pass;
  part->low_watermark = low_watermark;
  part->options = options;
  part->message = message;
  part->kind = kind;
  try {
    if (const auto& why = call.call().unplaced) throw Error(*why).crossing("backward on " + worker_.name());
    part->enter(call.from(), pair, std::move(values));
  } catch (...) {
    part->failure = current_error();
    return finish_task(*part);
  }
  post_task(std::move(part));
}

// What a message of worker `from` asks for, checked.
void DistEngine::BackwardTask::enter(WorkerId from, uint64_t pair, ValueList values) {
  const std::string& here = engine.worker_.name();
  if (!state) engine.throw_ended(context, ErrorKind::cancelled);
  if (state->dropped(pass)) throw_error(ErrorKind::cancelled, "[backward] the pass has failed elsewhere");
  state->commit(low_watermark);
  if (kind == Kind::want && values.empty()) {
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
    for (uint32_t i = 0; i < count && kind != Kind::finish && kind != Kind::want; ++i)
      roots.push_back({send.node, i});
    if (kind == Kind::gradient) take_grads(*send.node, std::move(values));
  }
  where = "backward on " + (cell ? cell->place() : here);
}

void DistEngine::BackwardTask::take_grads(const SendNode& node, ValueList values) {
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

// To the mailbox where it belongs. The pass has no deadline but that of whoever waits for it.
void DistEngine::post_task(std::shared_ptr<BackwardTask> part) {
  CallFrameScope scope({.worker = &worker_, .context = part->context});
  if (auto cell = part->cell) return cell->post_adaptive([this, part = std::move(part)] { run_task(*part); });
  run_outside(std::move(part), worker_.dispatch() == internal::actors::Dispatch::caller
                                   ? internal::actors::DispatchTarget::caller
                                   : outside_history_.where());
}

// The end of a pass may be the end of the program: stop() waits until the job has let go of this engine.
void DistEngine::run_outside(std::shared_ptr<BackwardTask> part, internal::actors::DispatchTarget where) {
  {
    std::lock_guard lock(mutex_);
    ++outside_jobs_;
  }
  outside_->post(internal::actors::make_job([this, part = std::move(part)]() mutable {
                   {
                     CallFrameScope scope({.worker = &worker_, .context = part->context});
                     const TimePoint start = worker_.clock().now();
                     run_task(*part);
                     part.reset();
                     outside_history_.note(worker_.clock().now() - start);
                   }
                   std::lock_guard lock(mutex_);
                   if (--outside_jobs_ == 0) outside_idle_.notify_all();
                 }),
                 where);
}

void DistEngine::run_task(BackwardTask& part) {
  try {
    const internal::actors::Profiler::Span span(profiler_, "part", part.where, part.context);
    part.run();
  } catch (...) {
    part.failure = current_error();
    if (!part.where.empty()) part.failure = std::move(*part.failure).crossing(part.where);
  }
  finish_task(part);
}

void DistEngine::finish_task(BackwardTask& part) {
  part.roots.clear();  // before anybody hears of the end: nothing of the graph is held here any more
  part.grads.clear();
  if (part.failure) part.drop_held();
  const StatePtr state = std::exchange(part.state, nullptr);
  part.cell.reset();
  const bool here = part.originator() == worker_.id();
  if (state && !here) state->note_sent(part.pass, part.led_to());  // before it leaves: then the pass may end
  try {
    const bool takes_report = !here && !part.failure && part.takes_report();
    if (!part.failure) part.send_held(takes_report ? std::optional(part.report()) : std::nullopt);
    if (takes_report) return check_links(part, state.get());
  } catch (...) {
    part.failure = current_error();
  }
  if (here) return note_report(part.context, part.pass, worker_.id(), part.report(), part.failure);
  kReport.tell(worker_, part.originator(), part.context, part.pass, part.report(),
               part.failure);  // a lost originator needs none
  check_links(part, state.get());
}

// A link that broke before the messages were noted.
void DistEngine::check_links(const BackwardTask& part, ContextState* state) {
  if (!state) return;
  for (const SentGrad& sent : part.led_to())
    if (auto why = worker_.members().loss(sent.to)) tell_broken(*state, sent.to, *why);
}

// Only the two ends of a link know that it broke, and that messages on it may be lost: the originator may
// have a good link to both. It hears of this after it has heard of the messages.
void DistEngine::tell_broken(ContextState& state, WorkerId lost, const Error& why) {
  for (const auto& [pass, ids] : state.sent_to(lost))
    kBroken.tell(worker_, originator_of(pass), pass, Error(why).crossing("backward on " + worker_.name()),
                 ids);
}

}  // namespace troupe::autograd
