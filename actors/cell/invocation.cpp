#include "actors/cell/invocation.h"

#include "actors/calls/incoming_calls.h"
#include "actors/calls/late_arguments.h"
#include "actors/cell/actor_cell.h"
#include "actors/cell/suspension.h"
#include "actors/cell/this_call.h"
#include "core/base/fork.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/graph/autocast.h"
#include "core/graph/copy_on_write.h"
#include "net/transport.h"

namespace troupe {

bool this_call::cancelled() {
  const CallFrame& f = frame();
  if (!f.call) return false;
  return f.call->cancelled() || f.call->host().clock.now() >= f.call->deadline();
}
TimePoint this_call::deadline() { return frame().deadline; }
void this_call::waits_for(std::string what) {
  if (auto* call = frame().call.get()) call->set_waits_for(std::move(what));
}

namespace internal::actors {

static Mutex waits_for_mutex, without_actor_mutex;

std::string Invocation::waits_for() const {
  Lock lock(waits_for_mutex);
  return waits_for_ ? *waits_for_ : "";
}
void Invocation::set_waits_for(std::string what) {
  auto next = std::make_unique<std::string>(std::move(what));
  Lock lock(waits_for_mutex);
  waits_for_.swap(next);
}

static Error not_wanted() {
  return Error(ErrorKind::cancelled, "[call] the caller wants no result any more");
}

Invocation::Invocation(const ActorHost& host, WorkerId from, internal::net::Call call, Deliver deliver)
    : host_(host),
      from_(from),
      call_(std::move(call)),
      deliver_(std::move(deliver)),
      deadline_(deadline_of_now()),
      busy_(host.traffic) {}

TimePoint Invocation::deadline_of_now() const {
  return call_.timeout_us > 0 ? host_.clock.now() + std::chrono::microseconds(call_.timeout_us)
                              : TimePoint::max();
}

// The deadline counts from the arrival. Without one, nobody has looked at the clock then.
Duration Invocation::queued_until(TimePoint start) const {
  if (call_.timeout_us <= 0) return Duration(0);
  return std::max(start - (deadline_ - std::chrono::microseconds(call_.timeout_us)), Duration(0));
}

Worker& Invocation::worker() const { return host_.worker; }

Invocation::~Invocation() {
  if (!(state_ & kCompleted)) fail(Error(ErrorKind::failed, "[call] was dropped without a reply"));
}

void Invocation::set_target(std::shared_ptr<ActorCell> cell, size_t method) {
  cell_ = std::move(cell);
  method_ = method;
  state_ |= kTargeted;
}

bool Invocation::list(IncomingCalls& calls) {
  if (state_ & kCompleted || !calls.add(from_, call_.id, Ref<Cancellable>(this))) return false;
  listed_in_ = &calls;
  if (!(state_.fetch_or(kListed) & kCompleted)) return true;
  calls.remove(from_, call_.id, *this);
  return false;
}

void Invocation::cancel() {
  // What set_target() gives is there if its mark is; else the call has not started, and will see ours.
  const uint8_t before = state_.fetch_or(kCancelled);
  if (before & (kCancelled | kCompleted)) return;
  if (!(before & kTargeted)) {
    std::shared_ptr<Suspension> waiting;
    {
      const Lock lock(without_actor_mutex);
      waiting = std::move(suspension_);
    }
    if (waiting) waiting->resume();  // which ends in stop()
    return;
  }
  if (call_.late_number && host_.late_arguments.give_up(from_, call_.late_number))
    return fail(not_wanted());  // it is in no mailbox
  cell_->post(
      [self = Ref<Invocation>(this)] {
        if (auto waiting = std::move(self->suspension_)) waiting->resume();  // which ends in stop()
      },
      DispatchTarget::pool);
}

void Invocation::waits_in(std::shared_ptr<Suspension> suspension) {
  const Ref<Invocation> self(this);  // it may be the coroutine's, which is ended
  if (cell_) {
    suspension_ = std::move(suspension);
    if (cancelled()) suspension_->resume();
    return;
  }
  {
    const Lock lock(without_actor_mutex);
    suspension_ = suspension;
  }
  if (cancelled()) suspension->resume();
}

void Invocation::stop() {
  const Ref<Invocation> self(this);
  fail(not_wanted());
  std::exchange(coroutine_, nullptr).destroy();
}

void Invocation::fail(Error error) {
  if (cell_) error = std::move(error).crossing(cell_->method_label(method_));
  complete(Result<Value>(std::move(error)));
}

void Invocation::threw(Error error) {
  internal::log::info(cell_->method_label(method_) + ", called by " + host_.members.name_of(from_) +
                      ", threw: " + error.message());
  fail(std::move(error));
}

void Invocation::complete(Value value) { complete(Result<Value>(std::move(value))); }

void Invocation::complete(Result<Value> result) {
  // A child that the method forked, and that comes back from it: the answer is its parent's.
  end_refused_child(cell_ ? cell_->method_label(method_).c_str() : "a service");
  const uint8_t before = state_.fetch_or(kCompleted);
  if (before & kCompleted) return;
  if (before & kListed) listed_in_->remove(from_, call_.id, *this);
  if (call_.late_number) host_.late_arguments.ended(from_, call_.late_number);
  if (before & kCancelled && result.ok()) result = Result<Value>(not_wanted());
  if (call_.store_as) {
    for (auto& i : host_.interceptors) i->store_result(*this, result);
    return;
  }
  if (call_.no_result && result.ok()) result = Result<Value>(Value());
  internal::net::Reply reply;
  reply.id = call_.id;
  const auto how = hand_over_.end();
  if (!how || !result.ok() || !host_.pass_on(*how, *this, result.value(), reply))
    reply.result = std::move(result);
  try {
    deliver(reply);
  } catch (...) {
    Error error = current_error();
    if (cell_) error = std::move(error).crossing(cell_->method_label(method_));
    reply.result = Result<Value>(std::move(error));  // this result cannot travel; say so instead
    reply.link = {};
    try {
      deliver_(reply);
    } catch (const Error&) {  // the caller is gone, or we are
    }
  }
}

void Invocation::deliver(internal::net::Reply& reply) {
  const auto& interceptors = host_.interceptors;
  size_t prepared = 0;  // interceptors that have to undo if the reply is not sent
  try {
    const bool wanted = call_.id && !call_.no_result;
    for (; wanted && prepared < interceptors.size(); ++prepared)
      interceptors[prepared]->outgoing_reply(*this, reply);
    if (wanted && reply.result.ok()) {
      Value& value = reply.result.value();
      visit_tensors(value, internal::own_elements);
    }
    deliver_(reply);
  } catch (...) {
    for (size_t i = 0; i < prepared; ++i) interceptors[i]->reply_not_sent(*this, reply);
    throw;
  }
}

void Invocation::run() {
  CallFrameScope scope({.worker = &host_.worker,
                        .actor = cell_.get(),
                        .what = &cell_->method_label(method_),
                        .context = call_.context,
                        .deadline = deadline_,
                        .call = this,
                        .seed_stream = &cell_->stream(),
                        .nodes = cell_->nodes(),
                        .device_stream = cell_->device_stream()});
  const ThreadModeScope modes({call_.grad_enabled, static_cast<Autocast>(call_.halves)});
  const TimePoint start = host_.clock.now();
  if (within_)
    cell_->note_inner(method_);
  else
    cell_->note_begun(method_, queued_until(start));
  if (cancelled()) return fail(not_wanted());
  if (start >= deadline_)
    return fail(
        Error(ErrorKind::deadline, "[call] the caller's deadline had passed before the method could start"));
  began_.store(start.time_since_epoch().count(), std::memory_order_relaxed);
  const CurrentActivity::Scope activity(cell_->activity(), cell_->method_label(method_).c_str(), this, start);
  ActorCell::AtWork at_work(*cell_, method_, start);
  try {
    Actor& actor = cell_->object();
    cell_->method(method_).invoke(actor, *this);
  } catch (...) {
    end_refused_child(cell_->method_label(method_).c_str());
    if ((call_.id && !call_.no_result) || call_.store_as)
      cell_->failure_heard();  // its answer tells, or what is kept
    threw(current_error());
  }
  end_refused_child(cell_->method_label(method_).c_str());
  if (call_.notify_start && !(state_ & kCompleted)) host_.notify_started(from_, call_.id);
  const TimePoint end = host_.clock.now();
  at_work.until(end);
  cell_->note_duration(method_, end - start);
}

}  // namespace internal::actors
}  // namespace troupe
