#include "autograd/dist/part.h"

#include "actors/codec.h"
#include "autograd/engine.h"

namespace troupe::autograd {

void DistEngine::Part::run() {
  const RunOptions how{.retain_graph = (options & kRetain) != 0};
  if (!(options & kExact)) return autograd::run(roots, std::move(grads), *this, how);
  const actors::ActorCell* owner = cell.get();
  if (kind == Kind::reach) {
    for (Node* exit : state->region(pass, owner, how)->expect(roots)) send(*exit, {});
    return;
  }
  const auto region = state->find_region(pass, owner);
  if (!region) throw_invalid("[backward] gradients came for a part that none were expected for");
  region->supply(roots, std::move(grads), *this);
  if (region->done()) state->end_region(pass, owner);
}

void DistEngine::Part::leave(Node& node, Tensors out) {
  out.resize(node.num_inputs());
  ValueList values;
  for (auto& g : out) values.push_back(g.defined() ? Value(std::move(g)) : Value());
  send(node, std::move(values));
}

void DistEngine::Part::send(Node& node, ValueList values) {
  auto& receive = dynamic_cast<ReceiveNode&>(node);
  if (receive.context() != context)
    throw_invalid(
        "[backward] the graph leads into another autograd context: a tensor received in one context was "
        "used in a loss of another; detach() it");
  send_held();
  held.emplace(Outgoing{{engine.next_message(), receive.peer()}, receive.pair(), std::move(values)});
  children.push_back(held->to);
}

void DistEngine::Part::send_held(Value report) {
  if (!held) return;
  Outgoing message = std::move(*held);
  held.reset();
  ++(kind == Kind::reach ? engine.reach_messages_ : engine.gradient_messages_);
  const auto sent =
      engine.worker_.call_service(message.to.to, kind == Kind::reach ? kReach : kBackward,
                                  {number(originator), number(pass), Value(options), number(message.to.id),
                                   number(message.pair), Value(std::move(message.values)), std::move(report)},
                                  {.timeout = Duration(0), .one_way = true});
  if (const auto* r = sent.peek(); r && !r->ok()) throw r->error();
}

Value DistEngine::Part::report() const {
  ValueList sent;
  for (const auto& c : children) sent.push_back(ValueList{number(c.id), number(c.to)});
  return ValueList{number(message), Value(std::move(sent))};
}

void DistEngine::on_message(Kind kind, const Ref<actors::Invocation>& call) {
  const uint64_t context = call->call().context;
  auto [originator, pass, options, message, pair, values, report] =
      actors::ListCodec<WorkerId, uint64_t, int64_t, uint64_t, uint64_t, ValueList,
                        std::optional<Report>>::from(std::move(call->call().args),
                                                     kind == Kind::reach ? kReach : kBackward);
  if (report) note_report(context, pass, *report, {});
  auto part = std::make_shared<Part>(*this, context, find_state(context));
  part->originator = originator;
  part->pass = pass;
  part->options = options;
  part->message = message;
  part->kind = kind;
  call->complete(Value());
  try {
    if (!part->state)
      throw_error(ErrorKind::cancelled,
                  "[backward] worker " + worker_.name() + " has no such context (it has ended)");
    if (part->state->dropped(pass))
      throw_error(ErrorKind::cancelled, "[backward] the pass has failed elsewhere");
    const ContextState::Send send = part->state->find_send(pair);
    if (!send.node)
      throw_invalid("[backward] worker " + worker_.name() + " has recorded no message of this number");
    part->cell = send.cell;
    part->where = "backward on " + (send.cell ? send.cell->label() : worker_.name());
    const size_t count = send.node->tensors().size();
    for (uint32_t i = 0; i < count; ++i) part->roots.push_back({send.node, i});
    if (kind == Kind::gradient) {
      if (values.size() != count) throw_invalid("[backward] a message with the wrong number of gradients");
      for (size_t i = 0; i < count; ++i) {
        part->grads.push_back(actors::from_value<Tensor>(std::move(values[i])));
        const auto& [dtype, shape] = send.node->tensors()[i];
        const Tensor& g = part->grads.back();
        if (g.defined() && (g.dtype() != dtype || g.shape() != shape))
          throw_invalid("[backward] gradient of a " + std::string(name(dtype)) + " " + shape.str() +
                        " came as " + g.str());
      }
    }
  } catch (...) {
    part->failure = current_error();
    return finish_part(*part);
  }
  post_part(std::move(part));
}

// To the mailbox where it belongs. The pass has no deadline but that of whoever waits for it.
void DistEngine::post_part(std::shared_ptr<Part> part) {
  FrameScope scope({.worker = &worker_, .context = part->context});
  if (auto cell = part->cell) return cell->post_paced([this, part = std::move(part)] { run_part(*part); });
  run_outside(std::move(part),
              worker_.dispatch() == actors::Dispatch::caller ? actors::Where::caller : outside_pace_.where());
}

// The end of a pass may be the end of the program: stop() waits until the job has let go of this engine.
void DistEngine::run_outside(std::shared_ptr<Part> part, actors::Where where) {
  {
    std::lock_guard lock(mutex_);
    ++outside_jobs_;
  }
  outside_->post(actors::make_job([this, part = std::move(part)]() mutable {
                   {
                     FrameScope scope({.worker = &worker_, .context = part->context});
                     const TimePoint start = worker_.clock().now();
                     run_part(*part);
                     part.reset();
                     outside_pace_.note(worker_.clock().now() - start);
                   }
                   std::lock_guard lock(mutex_);
                   if (--outside_jobs_ == 0) outside_idle_.notify_all();
                 }),
                 where);
}

void DistEngine::run_part(Part& part) {
  try {
    part.run();
  } catch (...) {
    part.failure = current_error();
    if (!part.where.empty()) part.failure = std::move(*part.failure).crossing(part.where);
  }
  finish_part(part);
}

void DistEngine::finish_part(Part& part) {
  part.roots.clear();  // before anybody hears of the end: nothing of the graph is held here any more
  part.grads.clear();
  const StatePtr state = std::exchange(part.state, nullptr);
  part.cell.reset();
  const bool here = part.originator == worker_.id();
  if (state && !here) state->note_sent(part.pass, part.children);
  try {
    const bool takes_report = !here && !part.failure && part.takes_report();
    if (!part.failure) part.send_held(takes_report ? part.report() : Value());
    if (takes_report) return check_links(part, state.get());
  } catch (...) {
    part.failure = current_error();
  }
  if (here) {
    Report report{part.message, {}};
    for (const auto& c : part.children) report.second.emplace_back(c.id, c.to);
    return note_report(part.context, part.pass, report, part.failure);
  }
  FrameScope neutral({&worker_});
  (void)worker_.call_service(part.originator, kReport,
                             {number(part.context), number(part.pass), part.report(),
                              part.failure ? actors::to_value(*part.failure) : Value()},
                             {.timeout = Duration(0), .one_way = true});  // a lost originator needs none
  check_links(part, state.get());
}

// A link that broke before the messages were noted.
void DistEngine::check_links(const Part& part, ContextState* state) {
  if (!state) return;
  for (const SentGrad& sent : part.children)
    if (auto why = worker_.members().loss(sent.to)) tell_broken(part.context, *state, sent.to, *why);
}

// Only the two ends of a link know that it broke, and that messages on it may be lost: the originator may
// have a good link to both. It hears of this after it has heard of the messages.
void DistEngine::tell_broken(uint64_t context, ContextState& state, WorkerId lost, const Error& why) {
  FrameScope neutral({&worker_});
  for (const auto& [pass, ids] : state.sent_to(lost)) {
    ValueList list;
    for (GradMessageId id : ids) list.push_back(number(id));
    (void)worker_.call_service(
        originator_of(context), kBroken,
        {number(pass), actors::to_value(Error(why).crossing("backward on " + worker_.name())),
         Value(std::move(list))},
        {.timeout = Duration(0), .one_way = true});
  }
}

}  // namespace troupe::autograd
