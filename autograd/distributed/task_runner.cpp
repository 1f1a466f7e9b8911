#include "autograd/distributed/task_runner.h"

namespace troupe::autograd {

using internal::Lock;
using internal::actors::DispatchTarget;
using internal::actors::Invocation;

TaskRunner::TaskRunner(Outbox& outbox, Contexts& contexts, TakeReport take_report)
    : worker_(outbox.worker()),
      outbox_(outbox),
      contexts_(contexts),
      take_report_(std::move(take_report)),
      outside_(worker_.runtime().make_mailbox()) {
  for (PassPhase phase : kPhases)
    message_of(phase).serve(worker_, [this, phase](Invocation& call, auto&&... fields) {
      on_message(phase, call, std::move(fields)...);
    });
  kDrop.serve(worker_, [this](uint64_t context, uint64_t pass, bool failed) {
    if (auto state = contexts_.find(context)) failed ? state->drop_pass(pass) : state->forget_pass(pass);
  });
}

void TaskRunner::on_message(PassPhase phase, Invocation& call, uint64_t pass, int64_t options,
                            uint64_t message, uint64_t low_watermark, uint64_t pair, ValueList values,
                            const std::optional<Report>& report) {
  const uint64_t context = call.call().context;
  outbox_.profile(false, phase, {message, call.from()}, context, values);
  if (report) take_report_(context, pass, call.from(), *report, {});
  const TaskHead head{phase, context, pass, options, message, low_watermark};
  auto task = std::make_shared<BackwardTask>(outbox_, head, contexts_.find(context));
  try {
    if (const auto& why = call.call().unplaced) throw Error(*why).crossing("backward on " + worker_.name());
    if (!task->state) contexts_.throw_ended(context, ErrorKind::cancelled);
    task->enter(call.from(), pair, std::move(values));
  } catch (...) {
    task->failure = current_error();
    return finish(*task);
  }
  post(std::move(task));
}

// The pass has no deadline but that of whoever waits for it.
void TaskRunner::post(std::shared_ptr<BackwardTask> task) {
  CallFrameScope scope({.worker = &worker_, .context = task->context});
  if (auto cell = task->cell) return cell->post_adaptive([this, task = std::move(task)] { run(*task); });
  run_outside(std::move(task), worker_.dispatch() == internal::actors::Dispatch::caller
                                   ? DispatchTarget::caller
                                   : outside_history_.where());
}

void TaskRunner::start(std::shared_ptr<BackwardTask> task) {
  if (!task->cell) return run_outside(std::move(task), DispatchTarget::caller);
  CallFrame at = frame();
  at.context = task->context;
  CallFrameScope scope(at);
  run(*task);
}

// The end of a pass may be the end of the program: wait_until_idle() waits until the job has let go of this
// object.
void TaskRunner::run_outside(std::shared_ptr<BackwardTask> task, DispatchTarget where) {
  {
    const Lock lock(mutex_);
    ++jobs_;
  }
  outside_->post(
      internal::actors::make_job([this, task = std::move(task)]() mutable {
        {
          CallFrameScope scope({.worker = &worker_, .context = task->context, .nodes = &outside_nodes_});
          const TimePoint start = worker_.clock().now();
          run(*task);
          task.reset();
          outside_history_.note(worker_.clock().now() - start);
        }
        end_job();
      }),
      where);
}

void TaskRunner::end_job() {
  const Lock lock(mutex_);
  if (--jobs_ == 0) idle_.notify_all();
}

// The pass has heard of the task that goes on; a pass that fails, and a context that ends, cancel the result.
void TaskRunner::wait_for(std::shared_ptr<BackwardTask> next, BackwardTask::Waiting w) {
  {
    const Lock lock(mutex_);
    ++jobs_;
  }
  const Future<Tensors> result = std::move(w.result);
  if (!next->state->add_waiting(next->pass, next->message, result, std::move(w.step), next->cell))
    result.cancel();
  const CallFrameScope neutral({.worker = &worker_});
  result.on_ready([this, next = std::move(next)](const Result<Tensors>& came) mutable {
    next->state->end_waiting(next->pass, next->message);
    next->came = came;
    post(std::move(next));
    end_job();
  });
}

void TaskRunner::run(BackwardTask& task) {
  try {
    const internal::actors::Profiler::Span span(outbox_.profiler(), "part", task.where, task.context);
    task.run();
  } catch (...) {
    task.failure = current_error();
    if (!task.where.empty()) task.failure = std::move(*task.failure).crossing(task.where);
  }
  finish(task);
}

void TaskRunner::finish(BackwardTask& task) {
  std::vector<std::pair<std::shared_ptr<BackwardTask>, BackwardTask::Waiting>> next;
  for (auto& w : std::exchange(task.waiting, {}))
    if (task.failure)
      w.result.cancel();
    else
      next.emplace_back(task.next_of(w), std::move(w));
  task.roots.clear();  // before anybody hears of the end: nothing of the graph is held here any more
  task.grads.clear();
  task.region.reset();
  if (task.failure) task.drop_held();
  const Contexts::StatePtr state = std::exchange(task.state, nullptr);
  task.cell.reset();
  for (auto& [on, w] : next) wait_for(std::move(on), std::move(w));
  next.clear();
  const bool here = task.originator() == worker_.id();
  if (state && !here) state->note_sent(task.pass, task.led_to());  // before it leaves: then the pass may end
  try {
    const bool takes_report = !here && !task.failure && task.takes_report();
    if (!task.failure) task.send_held(takes_report ? std::optional(task.report()) : std::nullopt);
    if (takes_report) return check_links(task, state.get());
  } catch (...) {
    task.failure = current_error();
  }
  if (here) return take_report_(task.context, task.pass, worker_.id(), task.report(), task.failure);
  kReport.tell(worker_, task.originator(), task.context, task.pass, task.report(),
               task.failure);  // a lost originator needs none
  check_links(task, state.get());
}

void TaskRunner::wait_until_idle() {
  Lock lock(mutex_);
  idle_.wait(lock.native(), [&]() TROUPE_REQUIRES(mutex_) { return jobs_ == 0; });
}

// A link that broke before the messages were noted.
void TaskRunner::check_links(const BackwardTask& task, ContextState* state) {
  if (!state) return;
  for (const SentGrad& sent : task.led_to())
    if (auto why = worker_.members().loss(sent.to)) tell_broken(*state, sent.to, *why);
}

void TaskRunner::tell_broken(ContextState& state, WorkerId lost, const Error& why) {
  for (const auto& [pass, ids] : state.sent_to(lost))
    kBroken.tell(worker_, internal::owner_of_number(pass), pass,
                 Error(why).crossing("backward on " + worker_.name()), ids);
}

}  // namespace troupe::autograd
