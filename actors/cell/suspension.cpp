#include "actors/cell/suspension.h"

#include "actors/cell/actor_cell.h"
#include "actors/cell/task.h"
#include "core/graph/autocast.h"

namespace troupe::internal::actors {

Suspension::Suspension(std::coroutine_handle<> coroutine)
    : coroutine_(coroutine), frame_(frame()), cell_(current_cell()) {
  if (!cell_) frame_.nodes = nullptr;  // it goes on on any thread
}

void Suspension::announce() {
  if (cell_) cell_->add_suspension(weak_from_this());
  if (frame_.call) frame_.call->waits_in(shared_from_this());
}

void Suspension::resume() {
  if (!ended_.exchange(true)) go_on();
}

void Suspension::cancel(const Error& why) {
  if (ended_.exchange(true)) return;
  cancelled_ = why;
  go_on();
}

bool Suspension::stops_here() {
  const Invocation* call = frame().call.get();
  if (call && call->cancelled()) return true;
  const auto cell = current_cell();
  return cell && cell->gives_way();
}

void Suspension::check() const {
  if (cancelled_) throw *cancelled_;
}

void suspend_until(const FutureBase& future, std::coroutine_handle<> coroutine,
                   std::shared_ptr<Suspension>& suspension) {
  const auto waiting = std::make_shared<Suspension>(coroutine);
  suspension = waiting;
  // Both may be gone as soon as the coroutine goes on or is ended, on another thread or by announce(). The
  // future is the coroutine's: if that is destroyed, nobody wants the value.
  const FutureBase awaited = future;
  waiting->announce();
  awaited.watch_end([waiting](FutureCore&) { waiting->resume(); });
}

void Suspension::go_on() {
  auto run = [self = shared_from_this()] {
    CallFrameScope scope(self->frame_);
    const ThreadModeScope modes(self->modes_);
    Invocation* call = self->frame_.call.get();
    if (call && call->cancelled()) return call->stop();
    if (!call || !call->cell()) return self->coroutine_.resume();
    ActorCell& cell = *call->cell();  // the job keeps it
    const Clock& clock = cell.host().clock;
    const size_t method = call->method();
    const TimePoint start = clock.now();
    const CurrentActivity::Scope activity(cell.activity(), cell.method_label(method).c_str(), call, start);
    ActorCell::AtWork at_work(cell, method, start);
    self->coroutine_.resume();
    at_work.until(clock.now());
  };
  if (auto cell = std::move(cell_))
    cell->post(std::move(run), DispatchTarget::caller, nullptr);
  else
    run();
}

}  // namespace troupe::internal::actors
