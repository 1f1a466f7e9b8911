#include "actors/suspension.h"

#include "core/node.h"

namespace troupe::actors {

Suspension::Suspension(std::coroutine_handle<> coroutine)
    : coroutine_(coroutine), frame_(frame()), grad_(grad_enabled()), cell_(current_cell()) {}

void Suspension::announce() {
  if (cell_) cell_->add_suspension(weak_from_this());
  if (frame_.call) static_cast<Invocation*>(frame_.call)->waits_in(shared_from_this());
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
  const void* call = frame().call;
  return call && static_cast<const Invocation*>(call)->cancelled();
}

void Suspension::check() const {
  if (cancelled_) throw *cancelled_;
}

void Suspension::go_on() {
  auto run = [self = shared_from_this()] {
    FrameScope scope(self->frame_);
    GradMode mode(self->grad_);
    if (auto* call = static_cast<Invocation*>(self->frame_.call); call && call->cancelled())
      return call->stop();
    self->coroutine_.resume();
  };
  if (auto cell = std::move(cell_))
    cell->post(std::move(run), Where::caller);
  else
    run();
}

}  // namespace troupe::actors
