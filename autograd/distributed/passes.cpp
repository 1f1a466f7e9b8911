#include "autograd/distributed/passes.h"

namespace troupe::autograd {
namespace {

// Whether it could take long until all who work for a pass that failed so are known and have dropped it.
bool takes_long(ErrorKind kind) {
  return kind == ErrorKind::disconnected || kind == ErrorKind::cancelled || kind == ErrorKind::deadline;
}

constexpr size_t kMostShown = 8;  // of what a worker waits for

}  // namespace

using internal::Lock;

Passes::Passes(Outbox& outbox, Contexts& contexts, TaskRunner& runner)
    : worker_(outbox.worker()), outbox_(outbox), contexts_(contexts), runner_(runner) {
  kReport.serve(worker_, [this](internal::actors::Invocation& call, uint64_t context, uint64_t pass,
                                const Report& report, const std::optional<Error>& error) {
    take_report(context, pass, call.from(), report, error);
  });
  kBroken.serve(worker_, [this](uint64_t pass, const Error& why, const std::vector<GradMessageId>& messages) {
    update(pass, [&](Pass& p) { p.termination.lost(messages, why); });
  });
  kWaits.serve(worker_, [this](uint64_t number) {
    std::vector<std::string> all;
    if (const auto state = contexts_.find(number)) all = state->waits();
    for (std::string& one : worker_.waits()) all.push_back(std::move(one));
    if (all.size() > kMostShown) all.resize(kMostShown);
    return all;
  });
}

std::shared_ptr<Passes::Pass> Passes::make(uint64_t context, bool selects) {
  auto pass = std::make_shared<Pass>();
  std::tie(pass->number, pass->low_watermark) = contexts_.join(context)->begin_pass(
      [this] { return internal::owned_number(worker_.id(), ++last_pass_); });
  pass->context = context;
  pass->selects = selects;
  pass->total = internal::actors::Profiler::Span(outbox_.profiler(), "backward",
                                                 selects ? "grad" : "backward", context);
  return pass;
}

Future<void> Passes::backward(uint64_t context, const std::vector<Edge>& roots, Tensors grads,
                              const RunOptions& how, bool only_inputs, uint64_t meeting) {
  const int64_t options = BackwardTask::bits(how) | BackwardTask::bits_of_meeting(meeting);
  if (only_inputs)
    return start(make(context, true), {PassPhase::gradient, PassPhase::want, PassPhase::reach},
                 options | BackwardTask::kExact | BackwardTask::kSelect | BackwardTask::kInputs, roots,
                 std::move(grads));
  if (!contexts_.join(context)->shared_by(roots))
    return start(make(context, false), {PassPhase::finish, PassPhase::gradient}, options, roots,
                 std::move(grads));
  return start(make(context, false), {PassPhase::finish, PassPhase::gradient, PassPhase::reach},
               options | BackwardTask::kExact, roots, std::move(grads));
}

Future<Tensors> Passes::grad(uint64_t context, const std::vector<Edge>& roots, Tensors grads,
                             const std::vector<Edge>& inputs, const RunOptions& how) {
  const auto pass = make(context, true);
  const auto region = contexts_.join(context)
                          ->region(pass->number, internal::actors::current_cell().get(),
                                   [&] { return std::make_shared<ActorRegion>(how, inputs); })
                          .first;
  const int64_t options = BackwardTask::bits(how) | BackwardTask::kExact | BackwardTask::kSelect;
  return start(pass, {PassPhase::gradient, PassPhase::want, PassPhase::reach}, options, roots,
               std::move(grads))
      .then([region] { return region->captured(); });
}

// Its gradients stay in this actor, and no leaf gets any.
Future<Tensors> Passes::part(uint64_t context, internal::autograd::SplitPass::FirstPart part,
                             uint64_t meeting) {
  const auto region = std::make_shared<ActorRegion>(std::move(part.region));
  return start(make(context, false), {PassPhase::gradient}, BackwardTask::bits_of_meeting(meeting),
               part.roots, std::move(part.grads), region)
      .then([region] { return region->captured(); });
}

// `phases`: last first. A phase begins when the one before is over everywhere. `region`: has its roots
// already.
Future<void> Passes::start(const std::shared_ptr<Pass>& pass, const std::vector<PassPhase>& phases,
                           int64_t options, const std::vector<Edge>& roots, Tensors grads,
                           std::shared_ptr<ActorRegion> region) {
  const Contexts::StatePtr state = contexts_.join(pass->context);
  state->commit(pass->low_watermark);
  for (PassPhase phase : phases) {
    const TaskHead head{phase,   pass->context,         pass->number,
                        options, outbox_.next_number(), pass->low_watermark};
    auto task = std::make_shared<BackwardTask>(outbox_, head, state);
    task->cell = internal::actors::current_cell();
    if (phase == PassPhase::gradient || phase == PassPhase::reach) task->roots = roots;
    if (phase == PassPhase::gradient) task->grads = std::move(grads), task->region = std::move(region);
    pass->phases.push_back(std::move(task));
  }
  auto first = std::move(pass->phases.back());
  pass->phases.pop_back();
  pass->termination = Termination({first->message, worker_.id()});
  const Future<void> done = pass->promise.future();
  {
    const Lock lock(mutex_);
    passes_.emplace(pass->number, pass);
  }
  runner_.start(std::move(first));
  return done;
}

void Passes::take_report(uint64_t context, uint64_t number, WorkerId from, const Report& report,
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
void Passes::update(uint64_t number, const std::function<void(Pass&)>& change) {
  std::shared_ptr<Pass> pass;
  std::shared_ptr<BackwardTask> next;
  std::vector<std::shared_ptr<BackwardTask>> given_up;  // let go after the lock
  std::set<WorkerId> drop;
  std::optional<Error> failure;
  bool ended = true, answer = true;
  {
    const Lock lock(mutex_);
    auto at = passes_.find(number);
    if (at == passes_.end()) return;
    pass = at->second;
    change(*pass);
    if (!pass->termination.over()) return;
    failure = pass->termination.failure();
    if (failure) {
      given_up.swap(pass->phases);
      for (WorkerId w : pass->workers)
        if (pass->told.insert(w).second) drop.insert(w);
      pass->unanswered += drop.size();
      ended = pass->termination.drained() && pass->unanswered == 0;
      answer = !pass->answered && (ended || pass->hurry || takes_long(failure->kind()));
    } else if (!pass->phases.empty()) {
      next = std::move(pass->phases.back());
      pass->phases.pop_back();
      if (next->phase == PassPhase::finish && pass->watching.empty()) {
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
  if (next) return runner_.post(std::move(next));
  given_up.clear();
  const Contexts::StatePtr state = contexts_.find(pass->context);
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
void Passes::drop_everywhere(const Pass& pass, const std::set<WorkerId>& workers) {
  CallFrameScope neutral({&worker_});  // of the callback
  for (WorkerId to : workers)
    kDrop.ask(worker_, to, pass.context, pass.number, true)
        .on_ready([this, number = pass.number](const Result<Value>&) {  // lost: it has forgotten, too
          update(number, [](Pass& p) { --p.unanswered; });
        });
}

void Passes::end(const ContextState& state, const Error& why) {
  for (uint64_t number : state.running()) {
    std::shared_ptr<Pass> pass;
    bool answer;
    {
      const Lock lock(mutex_);
      auto at = passes_.find(number);
      if (at == passes_.end()) continue;
      pass = std::move(at->second);
      passes_.erase(at);
      answer = !std::exchange(pass->answered, true);
      if (answer) pass->total.end();
    }
    pass->phases.clear();
    if (answer) pass->promise.fail(pass->termination.failure().value_or(why));
  }
}

// The workers forget what they keep for a pass that nobody waits for. What it recorded and added they keep
// unless it failed.
void Passes::tell_over(uint64_t context, uint64_t pass, const std::set<WorkerId>& workers, bool failed) {
  for (WorkerId to : workers)
    if (!worker_.members().loss(to)) kDrop.tell(worker_, to, context, pass, failed);
}

std::vector<uint64_t> Passes::numbers() const {
  std::vector<uint64_t> numbers;
  const Lock lock(mutex_);
  for (const auto& [number, pass] : passes_) numbers.push_back(number);
  return numbers;
}

void Passes::worker_lost(WorkerId id, const Error& why) {
  for (uint64_t n : numbers()) update(n, [&](Pass& p) { p.termination.lost(id, why); });
}

void Passes::fail_all(const Error& why) {
  for (uint64_t n : numbers()) update(n, [&](Pass& p) { p.termination.fail(why); });
}

size_t Passes::size() const {
  const Lock lock(mutex_);
  return passes_.size();
}

std::string Passes::waiting_for(uint64_t context) {
  const Contexts::StatePtr state = contexts_.find(context);
  if (!state) return "";
  const std::vector<uint64_t> running = state->running();
  std::set<WorkerId> workers;
  {
    const Lock lock(mutex_);
    for (uint64_t number : running)
      if (auto at = passes_.find(number); at != passes_.end())
        for (const WorkerId w : at->second->termination.outstanding()) workers.insert(w);
  }
  std::vector<std::pair<WorkerId, Future<std::vector<std::string>>>> asked;
  for (const WorkerId w : workers) asked.emplace_back(w, kWaits.ask(worker_, w, context));
  std::string text;
  for (const auto& [w, answer] : asked) {
    text += (text.empty() ? "" : ", ") + worker_.members().name_of(w);
    (void)answer.wait_for(std::chrono::seconds(1));
    const auto* came = answer.peek();
    if (!came || !came->ok()) continue;
    std::string what;
    for (const std::string& one : came->value()) what += (what.empty() ? "" : "; ") + one;
    if (!what.empty()) text += " (which waits for " + what + ")";
  }
  return text;
}

void Passes::abandon(uint64_t context, const Error& why) {
  const Contexts::StatePtr state = contexts_.find(context);
  if (!state) return;
  for (uint64_t number : state->running())
    update(number, [&](Pass& p) {
      p.hurry = true;
      p.termination.fail(why);
    });
}

}  // namespace troupe::autograd
