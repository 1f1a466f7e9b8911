#include "autograd/distributed/backward_task.h"

namespace troupe::autograd {
namespace {

uint64_t count_of(uint64_t context) { return context & ((uint64_t{1} << 40) - 1); }

}  // namespace

DistEngine::DistEngine(internal::actors::Worker& worker)
    : worker_(worker),
      profiler_(worker.interceptor<internal::actors::Profiler>()),
      outside_(worker.runtime().make_mailbox()) {}

DistEngine& DistEngine::install(internal::actors::Worker& worker) {
  auto owned = std::unique_ptr<DistEngine>(new DistEngine(worker));
  DistEngine* engine = owned.get();
  worker.add_interceptor(std::move(owned));
  using internal::actors::Invocation;
  for (Kind kind : kKinds)
    message_of(kind).serve(worker, [engine, kind](Invocation& call, auto&&... fields) {
      engine->on_message(kind, call, std::move(fields)...);
    });
  kReport.serve(worker, [engine](Invocation& call, uint64_t context, uint64_t pass, const Report& report,
                                 const std::optional<Error>& error) {
    engine->note_report(context, pass, call.from(), report, error);
  });
  kDrop.serve(worker, [engine](uint64_t context, uint64_t pass, bool failed) {
    if (auto state = engine->find_state(context)) failed ? state->drop_pass(pass) : state->forget_pass(pass);
  });
  kBroken.serve(worker,
                [engine](uint64_t pass, const Error& why, const std::vector<GradMessageId>& messages) {
                  engine->update(pass, [&](Pass& p) { p.termination.lost(messages, why); });
                });
  kJoined.serve(worker,
                [engine](Invocation& call, uint64_t context) { engine->on_joined(call.from(), context); });
  kRelease.serve_later(worker, [engine](const Ref<Invocation>& call, uint64_t context, uint64_t below) {
    engine->forget(context, below, call->call().id != 0).on_ready([call](const Result<void>&) {
      kRelease.answer(*call, {});
    });
  });
  worker.add_metrics([engine](internal::actors::Worker::Metrics& m) {
    std::lock_guard lock(engine->mutex_);
    m["contexts"] = static_cast<int64_t>(engine->contexts_.size());
    m["backward_passes"] = static_cast<int64_t>(engine->passes_.size());
    m["send_nodes"] = *engine->send_nodes_;
    m["receive_nodes"] = *engine->receive_nodes_;
    m["gradient_messages_sent"] = engine->sent_[static_cast<size_t>(Kind::gradient)];
    m["reach_messages_sent"] = engine->sent_[static_cast<size_t>(Kind::reach)];
    m["want_messages_sent"] = engine->sent_[static_cast<size_t>(Kind::want)];
  });
  return *engine;
}

// ---- contexts

uint64_t DistEngine::new_context() {
  std::lock_guard lock(mutex_);
  if (stopped_)
    throw_error(ErrorKind::cancelled, "[autograd] worker " + worker_.name() + " is shutting down");
  const uint64_t id = (uint64_t{worker_.id()} << 40) | ++last_context_;
  contexts_.emplace(id, std::make_shared<ContextState>());
  return id;
}

bool DistEngine::ended(uint64_t context) {
  const WorkerId originator = originator_of(context);
  if (originator == worker_.id()) return count_of(context) <= last_context_;  // not being alive
  auto at = ended_.find(originator);
  return (at != ended_.end() && at->second.contains(count_of(context))) || worker_.members().loss(originator);
}

void DistEngine::throw_ended(uint64_t context, ErrorKind kind) const {
  const std::string text = "[autograd] the context has ended on worker " + worker_.name();
  if (const auto why = worker_.members().loss(originator_of(context)))
    throw Error(ErrorKind::disconnected, text + " with its originator: " + why->message())
        .with_worker(why->worker());
  throw_error(kind, text);
}

uint64_t DistEngine::lowest_live() {
  auto at = contexts_.lower_bound(uint64_t{worker_.id()} << 40);
  return at != contexts_.end() && originator_of(at->first) == worker_.id() ? count_of(at->first)
                                                                           : last_context_ + 1;
}

// With mutex_. Throws if no context can have this number, as far as this worker can know.
void DistEngine::check_number(uint64_t context) {
  const WorkerId originator = originator_of(context);
  if (ended(context)) throw_ended(context, ErrorKind::invalid);
  if (originator == worker_.id())
    throw_invalid("[autograd] worker " + worker_.name() + " has made no context of number " +
                  std::to_string(count_of(context)));
  if (!worker_.members().find(originator))
    throw_invalid("[autograd] got a context of worker " + std::to_string(originator) +
                  ", which is no member of this cluster");
}

// Whoever has state of a context watches its originator, and is known to it. Workers that it called, or that
// called it, are; others say that they have joined.
DistEngine::StatePtr DistEngine::state(uint64_t context, WorkerId from) {
  const WorkerId originator = originator_of(context);
  StatePtr made;
  {
    std::lock_guard lock(mutex_);
    if (stopped_)
      throw_error(ErrorKind::cancelled, "[autograd] worker " + worker_.name() + " is shutting down");
    if (auto at = contexts_.find(context); at != contexts_.end()) return at->second;
    check_number(context);
    made = contexts_[context] = std::make_shared<ContextState>();
  }
  worker_.watch(originator);
  if (worker_.members().loss(originator)) {  // maybe before the state was there to be forgotten
    std::lock_guard lock(mutex_);
    contexts_.erase(context);
    throw_ended(context, ErrorKind::invalid);
  }
  if (from != originator) kJoined.tell(worker_, originator, context);
  return made;
}

DistEngine::StatePtr DistEngine::find_state(uint64_t context) {
  std::lock_guard lock(mutex_);
  auto at = contexts_.find(context);
  return at == contexts_.end() ? nullptr : at->second;
}

void DistEngine::check_live(uint64_t context) {
  if (!find_state(context)) throw_ended(context, ErrorKind::invalid);
}

Future<void> DistEngine::release(uint64_t context, bool wait) { return forget(context, 0, wait); }

// `below`: what the originator says of its other contexts; 0 where this is the originator.
Future<void> DistEngine::forget(uint64_t context, uint64_t below, bool wait) {
  StatePtr state;
  {
    std::lock_guard lock(mutex_);
    if (originator_of(context) != worker_.id()) {
      ended_[originator_of(context)].add(count_of(context));
      ended_[originator_of(context)].add_below(below);
    }
    auto node = contexts_.extract(context);
    if (node.empty()) return Future<void>::ready({});
    state = std::move(node.mapped());
    if (originator_of(context) == worker_.id()) below = lowest_live();
  }
  end_now(*state, Error(ErrorKind::cancelled, "[backward] the context ended while the pass was running"));
  CallFrameScope neutral({&worker_});  // of the callbacks
  std::vector<Future<Value>> told;
  for (WorkerId peer : state->peers()) {
    if (peer == originator_of(context) || worker_.members().loss(peer)) continue;
    if (wait)
      told.push_back(kRelease.ask(worker_, peer, context, below));
    else
      kRelease.tell(worker_, peer, context, below);
  }
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

void DistEngine::on_joined(WorkerId from, uint64_t context) {
  uint64_t below = 0;
  {
    std::lock_guard lock(mutex_);
    if (auto at = contexts_.find(context); at != contexts_.end()) return at->second->add_peer(from);
    below = lowest_live();
  }
  kLateRelease.tell(worker_, from, context, below);
}

// Null if there is none here; throws for one that has ended, or never was.
DistEngine::StatePtr DistEngine::live_state(uint64_t context) {
  auto state = find_state(context);
  if (!state) {
    std::lock_guard lock(mutex_);
    check_number(context);
  }
  return state;
}

std::vector<WorkerId> DistEngine::peers(uint64_t context) {
  const auto state = live_state(context);
  return state ? state->peers() : std::vector<WorkerId>();
}

Tensor DistEngine::gradient(uint64_t context, const Tensor& leaf) {
  const auto state = live_state(context);
  return state ? state->gradient(leaf) : Tensor();
}

Tensor DistEngine::exchange_gradient(uint64_t context, const Tensor& leaf, Tensor grad) {
  // A worker without a part in the pass is given a gradient all the same, and so state.
  const auto state = grad.defined() ? this->state(context) : live_state(context);
  return state ? state->exchange_gradient(leaf, std::move(grad)) : Tensor();
}

void DistEngine::set_inputs(uint64_t context, Tensors inputs) {
  if (!inputs.empty()) (void)input_edges("set_context_inputs", inputs);  // checks them
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (inputs[i].impl() == inputs[k].impl())
        throw_invalid("[set_context_inputs] tensors " + std::to_string(k) + " and " + std::to_string(i) +
                      " are the same: give each once");
  state(context)->set_inputs(internal::actors::current_cell(), std::move(inputs));
}

Tensors DistEngine::inputs(uint64_t context) {
  const auto state = live_state(context);
  return state ? state->inputs(internal::actors::current_cell()) : Tensors();
}

// ---- the end of others, and of this worker

void DistEngine::worker_lost(WorkerId id, const Error& why) {
  std::vector<uint64_t> numbers;
  std::vector<StatePtr> orphans;  // let go after the lock
  std::vector<StatePtr> others;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, pass] : passes_) numbers.push_back(number);
    for (auto at = contexts_.begin(); at != contexts_.end();) {
      if (originator_of(at->first) == id) {
        orphans.push_back(std::move(at->second));
        at = contexts_.erase(at);
        continue;
      }
      others.push_back(at->second);
      ++at;
    }
    ended_.erase(id);
  }
  for (uint64_t n : numbers) update(n, [&](Pass& p) { p.termination.lost(id, why); });
  for (const StatePtr& state : orphans) {
    end_now(*state, why);
    tell_broken(*state, id, why);  // the pass may be another worker's
  }
  for (const StatePtr& state : others) tell_broken(*state, id, why);
}

void DistEngine::stop() {
  std::map<uint64_t, StatePtr> contexts;  // let go after the lock
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    contexts.swap(contexts_);
  }
  fail_passes([](const Pass&) { return true; },
              Error(ErrorKind::cancelled, "[backward] worker " + worker_.name() + " is shutting down"));
  std::unique_lock lock(mutex_);
  outside_idle_.wait(lock, [&] { return outside_jobs_ == 0; });
}

}  // namespace troupe::autograd
