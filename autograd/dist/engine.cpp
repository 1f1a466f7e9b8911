#include "autograd/dist/engine.h"

#include <algorithm>

#include "actors/codec.h"
#include "autograd/engine.h"
#include "core/log.h"

namespace troupe::autograd {
namespace {

constexpr const char* kBackward =
    "grad.backward";  // originator, pass, message, pair, gradients, sender's report or nothing
constexpr const char* kReport =
    "grad.report";  // pass, report: message and children (id, worker)..., error or nothing
constexpr const char* kRelease = "grad.release";  // context

Value number(uint64_t n) { return Value(static_cast<int64_t>(n)); }
WorkerId originator_of(uint64_t context) { return static_cast<WorkerId>(context >> 40); }

}  // namespace

// A pass enters the graph at `roots`; what happens on the way is collected here.
struct DistEngine::Part final : Sink {
  DistEngine& engine;
  uint64_t context;
  StatePtr state;
  WorkerId originator;
  uint64_t pass;
  GradMessageId message;
  std::vector<Edge> roots;
  Tensors grads;
  std::string where;  // for the error's trail
  std::vector<SentGrad> children;
  std::optional<Error> failure;

  Part(DistEngine& e, uint64_t c, StatePtr s, WorkerId o, uint64_t p, GradMessageId m)
      : engine(e), context(c), state(std::move(s)), originator(o), pass(p), message(m) {}

  void accumulate(const Tensor& leaf, const Tensor& grad) override { state->accumulate(leaf, grad); }
  void leave(Node& node, Tensors out) override {
    auto& receive = dynamic_cast<ReceiveNode&>(node);
    if (receive.context() != context)
      throw_invalid(
          "[backward] the graph leads into another autograd context: a tensor received in one context was "
          "used in a loss of another; detach() it");
    send_held();
    held.emplace(Outgoing{{engine.next_message(), receive.peer()}, receive.pair(), {}});
    for (auto& g : out) held->values.push_back(g.defined() ? Value(std::move(g)) : Value());
    children.push_back(held->to);
  }

  // The last gradient message waits for the end of the part: if it goes to the originator, it takes the
  // report along.
  struct Outgoing {
    SentGrad to;
    uint64_t pair;
    ValueList values;
  };
  std::optional<Outgoing> held;

  void send_held(Value report = {}) {
    if (!held) return;
    Outgoing message = std::move(*held);
    held.reset();
    const auto sent = engine.worker_.call_service(
        message.to.to, kBackward,
        {number(originator), number(pass), number(message.to.id), number(message.pair),
         Value(std::move(message.values)), std::move(report)},
        {.one_way = true});
    if (const auto* r = sent.peek(); r && !r->ok()) throw r->error();
  }
  Value report() const {
    ValueList sent;
    for (const auto& c : children) sent.push_back(ValueList{number(c.id), number(c.to)});
    return ValueList{number(message), Value(std::move(sent))};
  }
};

DistEngine::DistEngine(actors::Worker& worker) : worker_(worker), outside_(worker.runtime().make_mailbox()) {}

DistEngine& DistEngine::install(actors::Worker& worker) {
  auto owned = std::unique_ptr<DistEngine>(new DistEngine(worker));
  DistEngine* engine = owned.get();
  worker.add_interceptor(std::move(owned));
  worker.add_service(kBackward, [engine](const auto& call) { engine->on_backward(call); });
  worker.add_service(kReport, [engine](const auto& call) { engine->on_report(call); });
  worker.add_service(kRelease, [engine](const auto& call) { engine->on_release(call); });
  worker.add_metrics([engine](actors::Worker::Metrics& m) {
    std::lock_guard lock(engine->mutex_);
    m["contexts"] = static_cast<int64_t>(engine->contexts_.size());
    m["backward_passes"] = static_cast<int64_t>(engine->passes_.size());
    m["send_nodes"] = *engine->send_nodes_;
    m["receive_nodes"] = *engine->receive_nodes_;
  });
  return *engine;
}

// ---- contexts

uint64_t DistEngine::new_context() {
  const uint64_t id = (uint64_t{worker_.id()} << 40) | ++last_context_;
  state(id);
  return id;
}

DistEngine::StatePtr DistEngine::state(uint64_t context) {
  std::lock_guard lock(mutex_);
  if (stopped_)
    throw_error(ErrorKind::cancelled, "[autograd] worker " + worker_.name() + " is shutting down");
  auto& found = contexts_[context];
  if (!found) {
    if (std::find(ended_.begin(), ended_.end(), context) != ended_.end()) {
      contexts_.erase(context);
      throw_error(ErrorKind::cancelled, "[autograd] the context of this call has ended");
    }
    found = std::make_shared<ContextState>();
  }
  return found;
}

DistEngine::StatePtr DistEngine::find_state(uint64_t context) {
  std::lock_guard lock(mutex_);
  auto at = contexts_.find(context);
  return at == contexts_.end() ? nullptr : at->second;
}

Future<void> DistEngine::release(uint64_t context, bool wait) {
  StatePtr state;
  {
    std::lock_guard lock(mutex_);
    auto node = contexts_.extract(context);
    if (node.empty()) return Future<void>::ready({});
    state = std::move(node.mapped());
    ended_[next_ended_++ % ended_.size()] = context;
  }
  abandon(context, Error(ErrorKind::cancelled, "[backward] the context ended while the pass was running"));
  FrameScope neutral({&worker_});
  std::vector<Future<Value>> told;
  for (WorkerId peer : state->peers())
    if (peer != originator_of(context) && !worker_.members().loss(peer))
      told.push_back(worker_.call_service(peer, kRelease, {number(context)}, {.one_way = !wait}));
  Promise<void> done;
  struct Left {
    std::atomic<size_t> n;
  };
  auto left = std::make_shared<Left>();
  left->n = told.size() + 1;
  auto one = [done, left] {
    if (--left->n == 0) done.set();
  };
  for (auto& t : told)
    t.on_ready([one](const Result<Value>&) { one(); });  // a lost peer has forgotten it too
  one();
  return done.future();
}

void DistEngine::on_release(const Ref<actors::Invocation>& call) {
  auto [context] = actors::ListCodec<uint64_t>::from(std::move(call->call().args), kRelease);
  release(context, call->call().id != 0).on_ready([call](const Result<void>&) { call->complete(Value()); });
}

Tensor DistEngine::gradient(uint64_t context, const Tensor& leaf) {
  auto state = find_state(context);
  return state ? state->gradient(leaf) : Tensor();
}

// ---- running gradients back

Future<void> DistEngine::backward(uint64_t context, std::vector<Edge> roots, Tensors grads) {
  const uint64_t number = ++last_pass_;
  auto part = std::make_shared<Part>(*this, context, state(context), worker_.id(), number, next_message());
  part->roots = std::move(roots);
  part->grads = std::move(grads);
  auto pass = std::make_shared<Pass>(context, SentGrad{part->message, worker_.id()});
  {
    std::lock_guard lock(mutex_);
    passes_.emplace(number, pass);
  }
  auto cell = actors::current_cell();
  Frame at = frame();
  at.worker = &worker_;
  at.context = context;
  if (cell) {  // the actor's own part; we are in its mailbox
    FrameScope scope(at);
    run_part(part);
  } else {
    run_outside(std::move(part), at, actors::Where::caller);
  }
  return pass->promise.future();
}

void DistEngine::on_backward(const Ref<actors::Invocation>& call) {
  const uint64_t context = call->call().context;
  auto [originator, pass, message, pair, values, report] =
      actors::ListCodec<WorkerId, uint64_t, uint64_t, uint64_t, ValueList, std::optional<Report>>::from(
          std::move(call->call().args), kBackward);
  if (report) note_report(pass, *report, {});
  auto part = std::make_shared<Part>(*this, context, find_state(context), originator, pass, message);
  call->complete(Value());
  ContextState::Send send;
  try {
    if (!part->state)
      throw_error(ErrorKind::cancelled,
                  "[backward] worker " + worker_.name() + " has no such context (it has ended)");
    send = part->state->find_send(pair);
    if (!send.node)
      throw_invalid("[backward] worker " + worker_.name() + " has recorded no message of this number");
    if (values.size() != send.node->tensors().size())
      throw_invalid("[backward] a message with the wrong number of gradients");
    for (size_t i = 0; i < values.size(); ++i) {
      part->roots.push_back({send.node, static_cast<uint32_t>(i)});
      part->grads.push_back(actors::from_value<Tensor>(std::move(values[i])));
      const auto& [dtype, shape] = send.node->tensors()[i];
      const Tensor& g = part->grads.back();
      if (g.defined() && (g.dtype() != dtype || g.shape() != shape))
        throw_invalid("[backward] gradient of a " + std::string(name(dtype)) + " " + shape.str() +
                      " came as " + g.str());
    }
  } catch (...) {
    part->failure = current_error();
    send.node = nullptr;
    return finish_part(*part);
  }
  send.node = nullptr;
  part->where = "backward on " + (send.cell ? send.cell->label() : worker_.name());
  if (send.cell) return send.cell->post_paced([this, part] { run_part(part); });
  run_outside(std::move(part), frame(),
              worker_.dispatch() == actors::Dispatch::caller ? actors::Where::caller : outside_pace_.where());
}

// The end of a pass may be the end of the program: stop() waits until the job has let go of this engine.
void DistEngine::run_outside(std::shared_ptr<Part> part, const Frame& at, actors::Where where) {
  {
    std::lock_guard lock(mutex_);
    ++outside_jobs_;
  }
  outside_->post(actors::make_job([this, part = std::move(part), at]() mutable {
                   {
                     FrameScope scope(at);
                     const TimePoint start = worker_.clock().now();
                     run_part(std::move(part));
                     outside_pace_.note(worker_.clock().now() - start);
                   }
                   std::lock_guard lock(mutex_);
                   if (--outside_jobs_ == 0) outside_idle_.notify_all();
                 }),
                 where);
}

void DistEngine::run_part(std::shared_ptr<Part> part) {
  try {
    run(part->roots, std::move(part->grads), *part, {.retain_graph = true});
  } catch (...) {
    part->failure = current_error();
    if (!part->where.empty()) part->failure = std::move(*part->failure).crossing(part->where);
  }
  finish_part(*part);
}

void DistEngine::finish_part(Part& part) {
  part.roots.clear();  // before anybody hears of the end: nothing of the graph is held here any more
  part.grads.clear();
  part.state.reset();
  const bool here = part.originator == worker_.id();
  try {
    const bool takes_report = !here && !part.failure && part.held && part.held->to.to == part.originator;
    if (!part.failure) part.send_held(takes_report ? part.report() : Value());
    if (takes_report) return;
  } catch (...) {
    part.failure = current_error();
  }
  if (here) {
    Report report{part.message, {}};
    for (const auto& c : part.children) report.second.emplace_back(c.id, c.to);
    return note_report(part.pass, report, part.failure);
  }
  FrameScope neutral({&worker_});
  (void)worker_.call_service(
      part.originator, kReport,
      {number(part.pass), part.report(), part.failure ? actors::to_value(*part.failure) : Value()},
      {.one_way = true});  // a lost originator needs none
}

void DistEngine::on_report(const Ref<actors::Invocation>& call) {
  auto [pass, report, error] =
      actors::ListCodec<uint64_t, Report, std::optional<Error>>::from(std::move(call->call().args), kReport);
  call->complete(Value());
  note_report(pass, report, error);
}

void DistEngine::note_report(uint64_t pass, const Report& report, const std::optional<Error>& error) {
  std::vector<SentGrad> sent;
  for (const auto& [id, to] : report.second) sent.push_back({id, to});
  update(pass, [&](Termination& t) {
    if (error) t.fail(*error);
    t.handled(report.first, sent);
  });
  for (const SentGrad& s : sent) {  // its end must not go unnoticed
    if (s.to == worker_.id()) continue;
    worker_.watch(s.to);
    if (auto why = worker_.members().loss(s.to)) update(pass, [&](Termination& t) { t.lost(s.to, *why); });
  }
}

// Changes the state of a pass and completes it if that ended it. Unknown passes have ended: late reports of a
// failed one.
void DistEngine::update(uint64_t number, const std::function<void(Termination&)>& change) {
  std::shared_ptr<Pass> ended;
  {
    std::lock_guard lock(mutex_);
    auto at = passes_.find(number);
    if (at == passes_.end()) return;
    change(at->second->termination);
    if (!at->second->termination.over()) return;
    ended = std::move(at->second);
    passes_.erase(at);
  }
  if (const auto& failure = ended->termination.failure())
    ended->promise.fail(*failure);
  else
    ended->promise.set();
}

std::vector<std::string> DistEngine::waiting_for(uint64_t context) {
  std::vector<std::string> names;
  std::lock_guard lock(mutex_);
  for (const auto& [number, pass] : passes_)
    if (pass->context == context)
      for (WorkerId id : pass->termination.outstanding()) names.push_back(worker_.members().name_of(id));
  return names;
}

void DistEngine::abandon(uint64_t context, const Error& why) {
  std::vector<uint64_t> numbers;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, pass] : passes_)
      if (pass->context == context) numbers.push_back(number);
  }
  for (uint64_t n : numbers) update(n, [&](Termination& t) { t.fail(why); });
}

// ---- the end of others, and of this worker

void DistEngine::worker_lost(WorkerId id, const Error& why) {
  std::vector<uint64_t> numbers;
  std::vector<StatePtr> orphans;  // let go after the lock
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, pass] : passes_) numbers.push_back(number);
    for (auto at = contexts_.begin(); at != contexts_.end();) {
      if (originator_of(at->first) != id) {
        ++at;
        continue;
      }
      ended_[next_ended_++ % ended_.size()] = at->first;
      orphans.push_back(std::move(at->second));
      at = contexts_.erase(at);
    }
  }
  for (uint64_t n : numbers) update(n, [&](Termination& t) { t.lost(id, why); });
}

void DistEngine::abandon_all(const Error& why) {
  std::vector<uint64_t> numbers;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, pass] : passes_) numbers.push_back(number);
  }
  for (uint64_t n : numbers) update(n, [&](Termination& t) { t.fail(why); });
}

void DistEngine::stop() {
  std::unordered_map<uint64_t, StatePtr> contexts;  // let go after the lock
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    contexts.swap(contexts_);
  }
  abandon_all(Error(ErrorKind::cancelled, "[backward] worker " + worker_.name() + " is shutting down"));
  std::unique_lock lock(mutex_);
  outside_idle_.wait(lock, [&] { return outside_jobs_ == 0; });
}

}  // namespace troupe::autograd
