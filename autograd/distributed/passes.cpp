// Backward passes that start on this worker.
#include "autograd/distributed/backward_task.h"

namespace troupe::autograd {
namespace {

// Whether it could take long until all who work for a pass that failed so are known and have dropped it.
bool takes_long(ErrorKind kind) {
  return kind == ErrorKind::disconnected || kind == ErrorKind::cancelled || kind == ErrorKind::deadline;
}

}  // namespace

std::shared_ptr<DistEngine::Pass> DistEngine::new_pass(uint64_t context, bool selects) {
  auto pass = std::make_shared<Pass>();
  std::tie(pass->number, pass->low_watermark) =
      state(context)->begin_pass([this] { return (uint64_t{worker_.id()} << 40) | ++last_pass_; });
  pass->context = context;
  pass->selects = selects;
  pass->total =
      internal::actors::Profiler::Span(profiler_, "backward", selects ? "grad" : "backward", context);
  return pass;
}

Future<void> DistEngine::backward(uint64_t context, const std::vector<Edge>& roots, const Tensors& grads,
                                  const RunOptions& how, bool only_inputs) {
  if (only_inputs)
    return start(
        new_pass(context, true), {Kind::gradient, Kind::want, Kind::reach},
        BackwardTask::bits(how) | BackwardTask::kExact | BackwardTask::kSelect | BackwardTask::kInputs, roots,
        grads);
  if (!state(context)->shared_by(roots))
    return start(new_pass(context, false), {Kind::finish, Kind::gradient}, BackwardTask::bits(how), roots,
                 grads);
  return start(new_pass(context, false), {Kind::finish, Kind::gradient, Kind::reach},
               BackwardTask::bits(how) | BackwardTask::kExact, roots, grads);
}

Future<Tensors> DistEngine::grad(uint64_t context, const std::vector<Edge>& roots, const Tensors& grads,
                                 const std::vector<Edge>& inputs, const RunOptions& how) {
  const auto pass = new_pass(context, true);
  const auto region = state(context)
                          ->region(pass->number, internal::actors::current_cell().get(),
                                   [&] { return std::make_shared<ActorRegion>(how, inputs); })
                          .first;
  const int64_t options = BackwardTask::bits(how) | BackwardTask::kExact | BackwardTask::kSelect;
  return start(pass, {Kind::gradient, Kind::want, Kind::reach}, options, roots, grads).then([region] {
    return region->captured();
  });
}

// `kinds`: the phases, last first. A phase begins when the one before is over everywhere.
Future<void> DistEngine::start(const std::shared_ptr<Pass>& pass, const std::vector<Kind>& kinds,
                               int64_t options, const std::vector<Edge>& roots, const Tensors& grads) {
  const StatePtr state = this->state(pass->context);
  state->commit(pass->low_watermark);
  for (Kind kind : kinds) {
    auto part = std::make_shared<BackwardTask>(*this, pass->context, state);
    part->pass = pass->number;
    part->low_watermark = pass->low_watermark;
    part->options = options;
    part->message = next_message();
    part->kind = kind;
    part->cell = internal::actors::current_cell();
    if (kind == Kind::gradient || kind == Kind::reach) part->roots = roots;
    if (kind == Kind::gradient) part->grads = grads;
    pass->parts.push_back(std::move(part));
  }
  auto first = std::move(pass->parts.back());
  pass->parts.pop_back();
  pass->termination = Termination({first->message, worker_.id()});
  const Future<void> done = pass->promise.future();
  {
    std::lock_guard lock(mutex_);
    passes_.emplace(pass->number, pass);
  }
  if (first->cell) {  // the actor's own part; we are in its mailbox
    CallFrame at = frame();
    at.context = pass->context;
    CallFrameScope scope(at);
    run_task(*first);
  } else {
    run_outside(std::move(first), internal::actors::DispatchTarget::caller);
  }
  return done;
}

void DistEngine::note_report(uint64_t context, uint64_t number, WorkerId from, const Report& report,
                             const std::optional<Error>& error) {
  const auto& [message, led_to, watched] = report;
  std::vector<SentGrad> sent;
  std::set<WorkerId> workers{from};  // whoever sent it there may have died before saying so
  for (const auto& [id, to] : led_to) {
    sent.push_back({id, to});
    workers.insert(to);
  }
  workers.erase(worker_.id());
  bool known = false;
  update(number, [&](Pass& p) {
    known = true;
    if (error) p.termination.fail(*error);
    p.termination.handled(message, sent);
    if (watched) p.watching.emplace_back(from, watched);
    p.workers.insert(workers.begin(), workers.end());
  });
  if (!known) return tell_over(context, number, workers, true);  // it has failed: stop what has just begun
  for (WorkerId to : workers) {                                  // its end must not go unnoticed
    worker_.watch(to);
    if (auto why = worker_.members().loss(to)) update(number, [&](Pass& p) { p.termination.lost(to, *why); });
  }
}

// Changes the state of a pass, and takes it further. Unknown passes have ended.
void DistEngine::update(uint64_t number, const std::function<void(Pass&)>& change) {
  std::shared_ptr<Pass> pass;
  std::shared_ptr<BackwardTask> next;
  std::vector<std::shared_ptr<BackwardTask>> given_up;  // let go after the lock
  std::set<WorkerId> drop;
  std::optional<Error> failure;
  bool ended = true, answer = true;
  {
    std::lock_guard lock(mutex_);
    auto at = passes_.find(number);
    if (at == passes_.end()) return;
    pass = at->second;
    change(*pass);
    if (!pass->termination.over()) return;
    failure = pass->termination.failure();
    if (failure) {
      given_up.swap(pass->parts);
      for (WorkerId w : pass->workers)
        if (pass->told.insert(w).second) drop.insert(w);
      pass->unanswered += drop.size();
      ended = pass->termination.drained() && pass->unanswered == 0;
      answer = !pass->answered && (ended || pass->hurry || takes_long(failure->kind()));
    } else if (!pass->parts.empty()) {
      next = std::move(pass->parts.back());
      pass->parts.pop_back();
      if (next->kind == Kind::finish && pass->watching.empty()) {
        given_up.push_back(std::move(next));
      } else {
        next->targets = std::exchange(pass->watching, {});
        pass->termination = Termination({next->message, worker_.id()});
      }
    }
    if (ended && !next) passes_.erase(at);
    if (answer && !next) {
      pass->answered = true;
      pass->total.end();
    }
  }
  if (next) return post_task(std::move(next));
  given_up.clear();
  const StatePtr state = find_state(pass->context);
  if (state && failure) state->drop_pass(number);
  if (state && !failure && pass->selects) state->forget_pass(number);
  if (failure)
    drop_everywhere(*pass, drop);
  else if (pass->selects)
    tell_over(pass->context, number, pass->workers, false);
  if (ended && state) state->end_pass(number);
  if (!answer) return;
  if (failure)
    pass->promise.fail(*failure);
  else
    pass->promise.set();
}

// The workers have forgotten what they had of a failed pass when they answer.
void DistEngine::drop_everywhere(const Pass& pass, const std::set<WorkerId>& workers) {
  CallFrameScope neutral({&worker_});  // of the callback
  for (WorkerId to : workers)
    kDrop.ask(worker_, to, pass.context, pass.number, true)
        .on_ready([this, number = pass.number](const Result<Value>&) {  // lost: it has forgotten, too
          update(number, [](Pass& p) { --p.unanswered; });
        });
}

// The passes of a context that is over: nobody has to be told.
void DistEngine::end_now(const ContextState& state, const Error& why) {
  for (uint64_t number : state.running()) {
    std::shared_ptr<Pass> pass;
    bool answer;
    {
      std::lock_guard lock(mutex_);
      auto at = passes_.find(number);
      if (at == passes_.end()) continue;
      pass = std::move(at->second);
      passes_.erase(at);
      answer = !std::exchange(pass->answered, true);
      if (answer) pass->total.end();
    }
    pass->parts.clear();
    if (answer) pass->promise.fail(pass->termination.failure().value_or(why));
  }
}

// The workers forget what they keep for a pass that nobody waits for. What it recorded and added they keep
// unless it failed.
void DistEngine::tell_over(uint64_t context, uint64_t pass, const std::set<WorkerId>& workers, bool failed) {
  for (WorkerId to : workers)
    if (!worker_.members().loss(to)) kDrop.tell(worker_, to, context, pass, failed);
}

void DistEngine::fail_passes(const std::function<bool(const Pass&)>& which, const Error& why) {
  std::vector<uint64_t> numbers;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, pass] : passes_)
      if (which(*pass)) numbers.push_back(number);
  }
  for (uint64_t n : numbers) update(n, [&](Pass& p) { p.termination.fail(why); });
}

std::vector<std::string> DistEngine::waiting_for(uint64_t context) {
  std::vector<std::string> names;
  const StatePtr state = find_state(context);
  if (!state) return names;
  std::lock_guard lock(mutex_);
  for (uint64_t number : state->running())
    if (auto at = passes_.find(number); at != passes_.end())
      for (WorkerId id : at->second->termination.outstanding())
        names.push_back(worker_.members().name_of(id));
  return names;
}

void DistEngine::abandon(uint64_t context, const Error& why) {
  const StatePtr state = find_state(context);
  if (!state) return;
  for (uint64_t number : state->running())
    update(number, [&](Pass& p) {
      p.hurry = true;
      p.termination.fail(why);
    });
}

}  // namespace troupe::autograd
