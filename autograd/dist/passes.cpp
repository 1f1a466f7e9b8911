// Backward passes that start on this worker.
#include "actors/codec.h"
#include "autograd/dist/part.h"

namespace troupe::autograd {

Future<void> DistEngine::backward(uint64_t context, std::vector<Edge> roots, Tensors grads,
                                  bool retain_graph) {
  auto part = std::make_shared<Part>(*this, context, state(context));
  const bool exact = part->state->shared_by(roots);
  part->originator = worker_.id();
  part->pass = ++last_pass_;
  part->options = (exact ? Part::kExact : 0) | (retain_graph ? Part::kRetain : 0);
  part->message = next_message();
  part->cell = actors::current_cell();
  part->roots = std::move(roots);
  part->grads = std::move(grads);
  auto pass = std::make_shared<Pass>(context, Termination({part->message, worker_.id()}));
  if (exact) {  // the gradients wait until the wave is over
    auto wave = std::make_shared<Part>(*this, context, part->state);
    wave->originator = part->originator;
    wave->pass = part->pass;
    wave->options = part->options;
    wave->message = part->message;
    wave->kind = Kind::reach;
    wave->cell = part->cell;
    wave->roots = part->roots;
    part->message = next_message();
    pass->roots = std::exchange(part, std::move(wave));
  }
  {
    std::lock_guard lock(mutex_);
    passes_.emplace(part->pass, pass);
  }
  if (part->cell) {  // the actor's own part; we are in its mailbox
    Frame at = frame();
    at.context = context;
    FrameScope scope(at);
    run_part(*part);
  } else {
    run_outside(std::move(part), actors::Where::caller);
  }
  return pass->promise.future();
}

void DistEngine::on_report(const Ref<actors::Invocation>& call) {
  auto [context, pass, report, error] =
      actors::ListCodec<uint64_t, uint64_t, Report, std::optional<Error>>::from(std::move(call->call().args),
                                                                                kReport);
  call->complete(Value());
  note_report(context, pass, report, error);
}

void DistEngine::note_report(uint64_t context, uint64_t number, const Report& report,
                             const std::optional<Error>& error) {
  std::vector<SentGrad> sent;
  std::set<WorkerId> workers;
  for (const auto& [id, to] : report.second) {
    sent.push_back({id, to});
    if (to != worker_.id()) workers.insert(to);
  }
  bool known = false;
  update(number, [&](Pass& p) {
    known = true;
    if (error) p.termination.fail(*error);
    p.termination.handled(report.first, sent);
    p.workers.insert(workers.begin(), workers.end());
  });
  if (!known) return tell_dropped(context, number, workers);  // it has failed: stop what has just begun
  for (WorkerId to : workers) {                               // its end must not go unnoticed
    worker_.watch(to);
    if (auto why = worker_.members().loss(to)) update(number, [&](Pass& p) { p.termination.lost(to, *why); });
  }
}

// Changes the state of a pass, and takes it further if that ended it. Unknown passes have ended.
void DistEngine::update(uint64_t number, const std::function<void(Pass&)>& change) {
  std::shared_ptr<Pass> ended;
  std::shared_ptr<Part> next;
  {
    std::lock_guard lock(mutex_);
    auto at = passes_.find(number);
    if (at == passes_.end()) return;
    Pass& pass = *at->second;
    change(pass);
    if (!pass.termination.over()) return;
    if (pass.roots && !pass.termination.failure()) {
      next = std::move(pass.roots);
      pass.termination = Termination({next->message, worker_.id()});
    } else {
      ended = std::move(at->second);
      passes_.erase(at);
    }
  }
  if (next) return post_part(std::move(next));
  ended->roots.reset();
  const auto& failure = ended->termination.failure();
  if (!failure) {
    ended->promise.set();
    return;
  }
  ended->workers.insert(worker_.id());
  tell_dropped(ended->context, number, ended->workers);
  ended->promise.fail(*failure);
}

// The workers forget what they keep for a pass that has failed.
void DistEngine::tell_dropped(uint64_t context, uint64_t pass, const std::set<WorkerId>& workers) {
  FrameScope neutral({&worker_});
  for (WorkerId to : workers) {
    if (to == worker_.id()) {
      if (auto state = find_state(context)) state->drop_pass(pass);
    } else if (!worker_.members().loss(to)) {
      (void)worker_.call_service(to, kDrop, {number(context), number(pass)},
                                 {.timeout = Duration(0), .one_way = true});
    }
  }
}

void DistEngine::on_drop(const Ref<actors::Invocation>& call) {
  auto [context, pass] = actors::ListCodec<uint64_t, uint64_t>::from(std::move(call->call().args), kDrop);
  call->complete(Value());
  if (auto state = find_state(context)) state->drop_pass(pass);
}

void DistEngine::on_broken(const Ref<actors::Invocation>& call) {
  auto [pass, why, ids] =
      actors::ListCodec<uint64_t, Error, std::vector<uint64_t>>::from(std::move(call->call().args), kBroken);
  call->complete(Value());
  update(pass, [&, &why = why, &ids = ids](Pass& p) { p.termination.lost(ids, why); });
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
  std::lock_guard lock(mutex_);
  for (const auto& [number, pass] : passes_)
    if (pass->context == context)
      for (WorkerId id : pass->termination.outstanding()) names.push_back(worker_.members().name_of(id));
  return names;
}

void DistEngine::abandon(uint64_t context, const Error& why) {
  fail_passes([&](const Pass& p) { return p.context == context; }, why);
}

}  // namespace troupe::autograd
