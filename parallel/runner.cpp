#include "parallel/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/futures.h"
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

// (Not in the coroutines: g++ 12 takes no list of initializers in an expression that waits.)
template <class Order>
Future<Value> ask(const StageActor& stage, const char* method, Order order) {
  return stage.actor.call(method, ValueList{actors::to_value(std::move(order))});
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
  RunnerReport report;
  int64_t live = 0;
  std::vector<Future<Value>> sent;
};

int64_t Runner::now() const {
  return static_cast<actors::Worker*>(frame().worker)->clock().now().time_since_epoch().count();
}

const std::shared_ptr<Runner::Inbox>& Runner::inbox(uint64_t step) {
  auto& box = inboxes_[step];
  if (!box) box = std::make_shared<Inbox>();
  return box;
}

void Runner::connect(AnyRef previous, AnyRef next, AnyRef loss) {
  previous_ = std::move(previous), next_ = std::move(next), loss_ = std::move(loss);
}

ValueList Runner::message(uint64_t step, int64_t stage, int64_t micro_batch, bool forward, Value what,
                          int64_t sent) {
  return {Value(static_cast<int64_t>(step)),
          Value(stage),
          Value(micro_batch),
          Value(forward),
          std::move(what),
          Value(sent)};
}

void Runner::close() { previous_ = next_ = loss_ = {}, setup_.chunks.clear(); }

void Runner::receive(uint64_t step, int64_t stage, int64_t micro_batch, bool forward, Value what,
                     int64_t sent) {
  if (step <= over_) return;
  Inbox& box = *inbox(step);
  box.fresh.push_back({{forward, micro_batch, stage, sent, now()}, std::move(what)});
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
  std::erase_if(inboxes_, [&](const auto& entry) { return entry.first <= step; });
  std::vector<Future<Value>> told;
  for (size_t c = 0; c < setup_.chunks.size(); ++c) {
    const int64_t stage = static_cast<int64_t>(c) * setup_.workers + setup_.worker;
    told.push_back(ask(setup_.chunks[c], kDrop, WorkId{setup_.pipeline, step, stage, 0}));
  }
  co_await all(told);
}

Task<RunnerReport> Runner::step(RunnerStep order) {
  if (order.step <= over_) throw_error(ErrorKind::cancelled, "[pipeline] the step is over");
  over_ = order.step - 1;
  std::erase_if(inboxes_, [&](const auto& entry) { return entry.first <= over_; });
  Running run{.order = std::move(order), .me = self(this), .box = {}, .plan = {}, .report = {}, .sent = {}};
  run.box = inbox(run.order.step);
  run.plan = plan_of(run.order.plan, run.order.weights.size());
  for (size_t m = 0; m < run.order.batch.size(); ++m)
    run.plan->arrived(Work::forward, static_cast<int>(m), 0);
  run.report.losses.resize(run.order.targets.size());
  while (!run.plan->finished()) {
    if (run.box->failure) throw *run.box->failure;
    for (Message& message : std::exchange(run.box->fresh, {})) {
      const Came& c = message.came;
      run.report.came.push_back(c);
      run.box->waiting[{c.forward, c.stage, c.micro_batch}] = std::move(message.what);
      run.plan->arrived(c.forward ? Work::forward : Work::backward, static_cast<int>(c.micro_batch),
                        static_cast<int>(c.stage / setup_.workers));
    }
    const auto action = run.plan->next();
    if (action) {
      try {
        co_await perform(run, *action);
      } catch (...) {
        throw current_error().crossing(fmt::format("{} of micro-batch {} in stage {}", verb(action->work),
                                                   action->micro_batch,
                                                   action->chunk * setup_.workers + setup_.worker));
      }
      continue;
    }
    const int64_t since = now();
    co_await run.box->changed();
    for (const Message& message : run.box->fresh)
      run.report.exposed += std::max<int64_t>(0, message.came.arrived - std::max(since, message.came.sent));
  }
  if (run.order.record) {
    std::vector<Future<Value>> committed;
    for (size_t c = 0; c < setup_.chunks.size(); ++c) {
      const int64_t stage = static_cast<int64_t>(c) * setup_.workers + setup_.worker;
      committed.push_back(ask(setup_.chunks[c], kCommit, WorkId{setup_.pipeline, run.order.step, stage, 0}));
    }
    co_await all(committed);
  }
  co_await all(run.sent);
  over_ = std::max(over_, run.order.step);
  inboxes_.erase(run.order.step);
  co_return std::move(run.report);
}

Task<void> Runner::perform(Running& run, Action action) {
  const int64_t stage = action.chunk * setup_.workers + setup_.worker, m = action.micro_batch;
  const bool last = stage == stages() - 1;
  const StageActor& to = actor_of(stage);
  const WorkId id{setup_.pipeline, run.order.step, stage, m};
  const auto index = static_cast<size_t>(m);
  const auto take = [&](bool forward) {
    auto node = run.box->waiting.extract({forward, stage, m});
    return node.empty() ? Value() : std::move(node.mapped());
  };
  Done done{static_cast<int64_t>(action.work), m, stage, 0, 0};
  if (action.work == Work::forward) {
    ForwardOrder order{
        .id = id, .method = to.method, .arity = to.arity, .input = {}, .given = {}, .loss = {}, .target = {}};
    order.first = stage == 0;
    order.input = order.first ? std::move(run.order.batch.at(index)) : take(true);
    if (!run.order.given.empty()) {
      auto& of_chunk = run.order.given.at(static_cast<size_t>(action.chunk));
      if (!of_chunk.empty()) order.given = std::move(of_chunk.at(index));
    }
    order.record = run.order.record;
    order.recompute = run.order.recompute.at(index);
    const bool loss = order.record && last && !to.loss.empty();
    if (loss) order.loss = to.loss, order.target = std::move(run.order.targets.at(index));
    run.report.peak_live = std::max(run.report.peak_live, ++run.live);
    done.begin = now();
    auto [output, value] =
        actors::from_value<std::pair<Value, Tensor>>(co_await ask(to, kForward, std::move(order)));
    done.end = now();
    if (!run.order.record) --run.live;
    if (loss) {
      run.report.losses.at(index) = value.item();
      if (!std::isfinite(value.item()))
        throw_error(
            ErrorKind::failed,
            fmt::format("[pipeline] the loss is {}: no gradients were computed for it", value.item()));
      run.plan->arrived(Work::backward, action.micro_batch, action.chunk);
    } else if (!last) {
      send(run, next_, stage + 1, m, true, std::move(output));
    } else if (run.order.record) {
      send(run, loss_, stage, m, true, std::move(output));
    } else {
      run.report.outputs.resize(run.order.weights.size());
      run.report.outputs[index] = std::move(output);
    }
  } else if (action.work == Work::weight) {
    done.begin = now();
    co_await ask(to, kWeights, id);
    done.end = now();
    --run.live;
  } else {
    BackwardOrder order{
        .id = id, .grads = {}, .weight = run.order.weights.at(index), .whole = action.work == Work::backward};
    if (!last || to.loss.empty()) order.grads = actors::from_value<Tensors>(take(false));
    done.begin = now();
    Value grads = co_await ask(to, kBackward, std::move(order));
    done.end = now();
    if (action.work == Work::backward) --run.live;
    if (stage > 0) send(run, previous_, stage - 1, m, false, std::move(grads));
  }
  run.report.done.push_back(done);
}

void Runner::send(Running& run, const AnyRef& to, int64_t stage, int64_t micro_batch, bool forward,
                  Value what) {
  if (!to) throw_invalid("[pipeline] the pipeline has been closed");
  const auto sent =
      to.call("receive", message(run.order.step, stage, micro_batch, forward, std::move(what), now()));
  sent.watch([me = run.me, step = run.order.step](const Result<Value>& r) {
    if (!r.ok() && r.error().kind() != ErrorKind::cancelled) me.tell<&Runner::not_sent>(step, r.error());
  });
  run.sent.push_back(sent);
}

}  // namespace troupe::parallel
