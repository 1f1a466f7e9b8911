#include "parallel/pipeline/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "autograd/add_gradient.h"
#include "core/async/future_combinators.h"
#include "core/base/generator.h"
#include "rref/here.h"

namespace troupe::parallel {
namespace {

// Of the row of one worker.
std::unique_ptr<Plan> plan_of(const std::string& text, size_t micro_batches) {
  const auto count = static_cast<int>(micro_batches);
  if (text.starts_with("credits(")) return make_plan(Credits{count, {std::atoi(text.c_str() + 8)}}, 0);
  Schedule one = parse_schedule("w0: " + text);
  one.micro_batches = count;
  return make_plan(one, 0);
}

// One micro-batch's calls in all ranks of a stage meet under it, and its backward passes do.
uint64_t meeting_of(uint64_t joint, const WorkId& id) {
  if (!joint) return 0;
  uint64_t number = joint;
  for (const uint64_t part :
       {id.step, static_cast<uint64_t>(id.stage), static_cast<uint64_t>(id.micro_batch)})
    number = splitmix64(number ^ part);
  return (number >> 8) | 1;
}

const char* verb(Work work) {
  switch (work) {
    case Work::forward:
      return "forward";
    case Work::backward:
      return "backward";
    case Work::input:
      return "backward (input part)";
    case Work::weight:
      return "backward (weight part)";
  }
  return "";
}

// Of a stage's output, and of the skips behind it: those that several stages took have the sum.
Tensors output_gradients(const StageLinks& links, ValueList parts) {
  if (parts.empty()) return {};  // the stage has the loss
  auto grads = internal::from_value<Tensors>(std::move(parts[0]));
  size_t slot = 1;
  for (const auto& users : links.gives) {
    Tensors sum = internal::from_value<Tensors>(std::move(parts.at(slot++)));
    for (size_t u = 1; u < users.size(); ++u) {
      const auto more = internal::from_value<Tensors>(std::move(parts.at(slot++)));
      for (size_t i = 0; i < sum.size(); ++i)
        if (more.at(i).defined())
          sum[i] = sum[i].defined() ? internal::autograd::sum_gradients(sum[i], more[i]) : more[i];
    }
    grads.insert(grads.end(), sum.begin(), sum.end());
  }
  return grads;
}

}  // namespace

void Runner::Inbox::notify() {
  if (auto waits = std::exchange(wake, std::nullopt)) waits->set();
}

Future<void> Runner::Inbox::changed() {
  wake.emplace();
  return wake->future();
}

// A step that runs.
struct Runner::Running {
  RunnerStep order;
  RRef<Runner> me;
  std::shared_ptr<Inbox> box;
  std::unique_ptr<Plan> plan;
  JoinBuffer arrivals;
  std::set<int64_t> tied;  // stages that all gradients of ties have come to
  RunnerReport report;
  int64_t live = 0;
  size_t forwards = 0;  // that are done
  std::vector<Future<Value>> sent;
  std::vector<Future<void>> begun;  // actions, if several go on at a time
};

// However a step ends.
struct Runner::EndOf {
  std::shared_ptr<Inbox> box;
  std::shared_ptr<Running>& running;
  EndOf(std::shared_ptr<Inbox> of, std::shared_ptr<Running>& run) : box(std::move(of)), running(run) {}
  EndOf(const EndOf&) = delete;
  ~EndOf() {
    if (running && running->box == box) running.reset();  // it refers to the runner
    box->forwards.fail(Error(ErrorKind::cancelled, "[pipeline] the step is over"));
    box->over.set();
  }
};

int64_t Runner::now() const { return frame().worker->clock().now().time_since_epoch().count(); }

const std::shared_ptr<Runner::Inbox>& Runner::inbox(uint64_t step) {
  auto& box = inboxes_[step];
  if (!box) box = std::make_shared<Inbox>();
  return box;
}

const StageActor& Runner::actor_of(int64_t stage) const {
  if (setup_.chunks.empty()) throw_invalid("[pipeline] the pipeline has been closed");
  if (stage < 0 || stage >= stages() || map_.worker(stage) != setup_.worker)
    throw_invalid(
        fmt::format("[pipeline] stage {} is none of worker {} of the pipeline", stage, setup_.worker));
  return setup_.chunks[static_cast<size_t>(map_.chunk(stage))];
}

void Runner::connect(std::vector<AnyRef> runners, AnyRef loss) {
  runners_ = std::move(runners), loss_ = std::move(loss);
}

void Runner::close() { runners_.clear(), loss_ = {}, setup_.chunks.clear(); }

void Runner::receive(uint64_t step, SkipLink to, int64_t micro_batch, bool forward, Value what,
                     int64_t sent) {
  if (step <= over_) return;
  const StageLinks& links = actor_of(to.stage).links;
  const bool skip = micro_batch != kOfTies && to.slot > 0;
  const int64_t from =
      skip ? links.source(forward, static_cast<size_t>(to.slot)) : to.stage + (forward ? -1 : 1);
  int64_t bytes = 0;
  visit_tensors(what, [&](Tensor& t) { bytes += t.defined() ? static_cast<int64_t>(t.nbytes()) : 0; });
  Inbox& box = *inbox(step);
  box.fresh.push_back({{forward, to, micro_batch, from, sent, now(), bytes}, std::move(what)});
  box.notify();
}

void Runner::not_sent(uint64_t step, Error why) {
  if (step <= over_) return;
  Inbox& box = *inbox(step);
  if (!box.failure) box.failure = std::move(why);
  box.notify();
}

Task<void> Runner::drop(uint64_t step) {
  over_ = std::max(over_, step);
  for (const auto& [number, box] : inboxes_)
    if (number <= step) box->over.set();
  std::erase_if(inboxes_, [&](const auto& entry) { return entry.first <= step; });
  std::vector<Future<Value>> told;
  for (size_t c = 0; c < setup_.chunks.size(); ++c) {
    told.push_back(kDrop.ask(setup_.chunks[c].actor, WorkId{setup_.pipeline, step, stage_of(c), 0}));
  }
  co_await all(told);
}

Task<RunnerReport> Runner::step(RunnerStep order) {
  const auto check_over = [&] {
    if (order.step <= over_) throw_error(ErrorKind::cancelled, "[pipeline] the step is over");
  };
  check_over();
  const EndOf end(inbox(order.step), running_);
  const auto before = std::exchange(last_, end.box);
  if (before) co_await before->over.future();
  check_over();
  over_ = order.step - 1;
  std::erase_if(inboxes_, [&](const auto& entry) { return entry.first <= over_; });
  const auto running = std::make_shared<Running>();
  Running& run = *running;
  run.order = std::move(order);
  run.me = self(this);
  run.box = end.box;
  run.plan = plan_of(run.order.plan, run.order.weights.size());
  for (size_t m = 0; m < run.order.batch.size(); ++m)
    run.plan->arrived(Work::forward, static_cast<int>(m), map_.chunk(0));
  run.report.losses.resize(run.order.targets.size());
  running_ = running;
  // Where ranks of a stage wait for each other, each goes on with what the others may have begun before it. A
  // table has one order for all of them.
  const bool overlaps = setup_.joint && run.order.plan.starts_with("credits(");
  while (!run.plan->finished()) {
    take_in(run);
    if (const auto action = run.plan->next()) {
      if (overlaps)
        begin(run, *action);
      else
        co_await perform(run, *action);
      continue;
    }
    const int64_t since = now();
    co_await run.box->changed();
    std::vector<Came> came;
    for (const Message& message : run.box->fresh) came.push_back(message.came);
    run.report.exposed += waited_for(came, since);
  }
  co_await all(run.begun);
  co_await commit(run);
  co_await all(run.sent);
  over_ = std::max(over_, run.order.step);
  inboxes_.erase(run.order.step);
  co_return std::move(run.report);
}

// As a call of its own, that waits by itself. Errors come as if something had not been sent.
void Runner::begin(Running& run, Action action) {
  const auto acting = run.me.with_timeout(Duration(0))
                          .call<&Runner::act>(run.order.step, static_cast<int64_t>(action.work),
                                              int64_t{action.micro_batch}, int64_t{action.chunk});
  acting.watch([me = run.me, step = run.order.step](const Result<void>& r) {
    if (!r.ok()) me.tell<&Runner::not_sent>(step, r.error());
  });
  run.begun.push_back(acting);
}

Task<void> Runner::act(uint64_t step, int64_t work, int64_t micro_batch, int64_t chunk) {
  const auto run = running_;
  if (!run || run->order.step != step || step <= over_)
    throw_error(ErrorKind::cancelled, "[pipeline] the step is over");
  const Action action{static_cast<Work>(work), static_cast<int>(micro_batch), static_cast<int>(chunk)};
  co_await perform(*run, action);
  run->box->notify();  // it may have made something ready
}

Task<void> Runner::after_forwards(uint64_t step) {
  if (step > over_) co_await inbox(step)->forwards.future();
}

// What has come since the last time.
void Runner::take_in(Running& run) {
  if (run.box->failure) throw *run.box->failure;
  for (Message& message : std::exchange(run.box->fresh, {})) {
    const Came& c = message.came;
    const StageActor& to = actor_of(c.to.stage);
    const bool of_ties = c.micro_batch == kOfTies;
    if (!of_ties) run.report.came.push_back(c);
    const size_t slots = of_ties ? slots_of(to.ties) : to.links.slots(c.forward);
    if (!run.arrivals.put(c.forward, c.to, c.micro_batch, slots, std::move(message.what))) continue;
    if (of_ties)
      run.tied.insert(c.to.stage);
    else
      run.plan->arrived(c.forward ? Work::forward : Work::backward, static_cast<int>(c.micro_batch),
                        map_.chunk(c.to.stage));
  }
}

// The gradients of this worker's stages go into the context: those of ties when all copies have theirs.
Task<void> Runner::commit(Running& run) {
  std::vector<CommitOrder> orders(setup_.chunks.size());
  std::vector<Tensors> own(orders.size());
  for (size_t c = 0; c < orders.size(); ++c) {
    const StageActor& stage = setup_.chunks[c];
    orders[c].id = {setup_.pipeline, run.order.step, stage_of(c), 0};
    if (run.order.record) orders[c].replicas = stage.replicas, orders[c].weight = run.order.total;
    orders[c].shares = run.order.shares;
    if (stage.ties.empty() || !run.order.record) continue;
    for (const Tie& tie : stage.ties) orders[c].names.push_back(tie.name);
    SumsOrder sums{orders[c].id, orders[c].names};
    own[c] = co_await kSums.ask(stage.actor, std::move(sums));
    for (size_t t = 0; t < stage.ties.size(); ++t)
      for (const SkipLink& other : stage.ties[t].others)
        send(run, other, kOfTies, true, internal::to_value(own[c][t]));
  }
  std::vector<Future<Value>> committed;
  for (size_t c = 0; c < orders.size(); ++c) {
    CommitOrder& order = orders[c];
    if (!order.names.empty()) {
      for (take_in(run); !run.tied.contains(order.id.stage); take_in(run)) co_await run.box->changed();
      Tensors came;
      for (Value& grad : run.arrivals.take(true, order.id.stage, kOfTies))
        came.push_back(internal::from_value<Tensor>(std::move(grad)));
      order.sums = sum_of_ties(setup_.chunks[c].ties, own[c], came);
    }
    committed.push_back(kCommit.ask(setup_.chunks[c].actor, std::move(order)));
  }
  co_await all(committed);
}

Task<void> Runner::perform(Running& run, Action action) {
  Done done{static_cast<int64_t>(action.work), action.micro_batch,
            stage_of(static_cast<size_t>(action.chunk)), 0, 0};
  try {
    if (action.work == Work::forward) {
      co_await forward(run, done);
    } else if (action.work == Work::weight) {
      const WorkId id{setup_.pipeline, run.order.step, done.stage, done.micro_batch};
      done.begin = now();
      co_await kWeights.ask(actor_of(done.stage).actor, id);
      done.end = now();
      --run.live;
    } else {
      co_await backward(run, done);
    }
  } catch (...) {
    throw current_error().crossing(
        fmt::format("{} of micro-batch {} in stage {}", verb(action.work), action.micro_batch, done.stage));
  }
  const size_t all = run.order.weights.size() * setup_.chunks.size();
  if (action.work == Work::forward && ++run.forwards == all) run.box->forwards.set();
  if (action.work == Work::input) run.plan->arrived(Work::weight, action.micro_batch, action.chunk);
  run.report.done.push_back(done);
}

Task<void> Runner::forward(Running& run, Done& done) {
  const int64_t stage = done.stage, m = done.micro_batch;
  const bool last = stage == stages() - 1;
  const StageActor& to = actor_of(stage);
  const auto index = static_cast<size_t>(m);
  ForwardOrder order;
  order.id = {setup_.pipeline, run.order.step, stage, m};
  order.method = to.method, order.arity = to.arity;
  order.first = stage == 0;
  order.replicas = to.replicas, order.total = run.order.total;
  order.meeting = meeting_of(setup_.joint, order.id);
  if (order.first) {
    order.input = std::move(run.order.batch.at(index));
  } else {
    order.skips = run.arrivals.take(true, stage, m);
    order.input = std::move(order.skips.at(0));
    order.skips.erase(order.skips.begin());
  }
  if (!run.order.given.empty()) {
    auto& of_chunk = run.order.given.at(static_cast<size_t>(map_.chunk(stage)));
    if (!of_chunk.empty()) order.given = std::move(of_chunk.at(index));
  }
  order.gives = static_cast<int64_t>(to.links.gives.size());
  order.carries = to.carries, order.slices = run.order.slices;
  order.record = run.order.record;
  order.recompute = run.order.recompute.at(index);
  order.packs = order.recompute || run.order.weights.size() > 1;
  const bool loss = order.record && last && !to.loss.empty();
  if (loss) order.loss = to.loss, order.target = std::move(run.order.targets.at(index));
  run.report.peak_live = std::max(run.report.peak_live, ++run.live);
  done.begin = now();
  auto [output, value, skips] = co_await kForward.ask(to.actor, std::move(order));
  done.end = now();
  if (!run.order.record) --run.live;
  for (size_t k = 0; k < to.links.gives.size(); ++k)
    for (const SkipLink& user : to.links.gives[k]) send(run, user, m, true, skips.at(k));
  if (loss) {
    run.report.losses.at(index) = value.item();
    if (!std::isfinite(value.item()) && run.order.weights.at(index) > 0 && run.order.loss_scale == 0)
      throw_error(ErrorKind::failed,
                  fmt::format("[pipeline] the loss is {}: no gradients were computed for it", value.item()));
    run.plan->arrived(Work::backward, static_cast<int>(m), map_.chunk(stage));
  } else if (!last) {
    send(run, {stage + 1, 0}, m, true, std::move(output));
  } else if (run.order.record) {
    send_to(run, loss_, {stage, 0}, m, true, std::move(output));
  } else {
    run.report.outputs.resize(run.order.weights.size());
    run.report.outputs[index] = std::move(output);
  }
}

Task<void> Runner::backward(Running& run, Done& done) {
  const int64_t stage = done.stage, m = done.micro_batch;
  const StageActor& to = actor_of(stage);
  const bool whole = static_cast<Work>(done.work) == Work::backward;
  BackwardOrder order;
  order.id = {setup_.pipeline, run.order.step, stage, m};
  order.grads = output_gradients(to.links, run.arrivals.take(false, stage, m));
  order.weight =
      run.order.weights.at(static_cast<size_t>(m)) * (run.order.loss_scale > 0 ? run.order.loss_scale : 1);
  order.whole = whole;
  order.carries = to.carries, order.slices = run.order.slices;
  order.replicas = to.replicas, order.total = run.order.total, order.shares = run.order.shares;
  order.count = static_cast<int64_t>(run.order.weights.size());
  order.meeting = meeting_of(setup_.joint, order.id);
  for (const Tie& tie : to.ties) order.tied.push_back(tie.name);
  done.begin = now();
  auto grads = co_await kBackward.ask(to.actor, std::move(order));
  done.end = now();
  if (whole) --run.live;
  if (stage > 0) send(run, {stage - 1, 0}, m, false, internal::to_value(std::move(grads.at(0))));
  for (size_t k = 0; k < to.links.takes.size(); ++k)
    send(run, to.links.takes[k], m, false, internal::to_value(std::move(grads.at(k + 1))));
}

void Runner::send(Running& run, SkipLink to, int64_t micro_batch, bool forward, Value what) {
  const auto worker = static_cast<size_t>(map_.worker(to.stage));
  send_to(run, worker < runners_.size() ? runners_[worker] : AnyRef(), to, micro_batch, forward,
          std::move(what));
}

void Runner::send_to(Running& run, const AnyRef& to, SkipLink link, int64_t micro_batch, bool forward,
                     Value what) {
  if (!to) throw_invalid("[pipeline] the pipeline has been closed");
  const auto sent = kReceive.ask(to, run.order.step, link, micro_batch, forward, std::move(what), now());
  sent.watch([me = run.me, step = run.order.step](const Result<Value>& r) {
    if (!r.ok() && r.error().kind() != ErrorKind::cancelled) me.tell<&Runner::not_sent>(step, r.error());
  });
  run.sent.push_back(sent);
}

}  // namespace troupe::parallel
