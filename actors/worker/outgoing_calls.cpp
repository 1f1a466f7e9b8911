#include "actors/worker/outgoing_calls.h"

#include "actors/worker/late_replies.h"
#include "actors/worker/worker.h"
#include "core/base/log.h"

namespace troupe::internal::actors {
namespace {

FlowLimits at_least_one(const FlowLimits& limits) {
  return {std::max<size_t>(limits.bytes, 1), std::max<size_t>(limits.messages, 1)};
}

}  // namespace

OutgoingCalls::OutgoingCalls(Worker& worker)
    : worker_(worker), pending_(at_least_one(worker.options_.limits)) {}

void OutgoingCalls::check_open() const {
  if (worker_.stopped_)
    throw_error(ErrorKind::cancelled, "[call] worker " + worker_.name() + " has been shut down");
}

CallLimit OutgoingCalls::limit_of(const CallOptions& options) const {
  const Duration timeout = options.timeout.value_or(worker_.timeout());
  if (timeout.count() < 0)
    throw_error(ErrorKind::deadline,
                "[call] a timeout of " + text_of(timeout) +
                    " has passed before the call: nothing was sent; expected more than 0, "
                    "or 0 for no limit");
  CallLimit limit{.from = options.timeout ? CallLimit::From::call : CallLimit::From::worker};
  const TimePoint outer = frame().deadline;
  if (timeout.count() == 0 && outer == TimePoint::max()) return limit;
  limit.made = worker_.clock().now();
  // A limit beyond what the clock can count is none.
  if (timeout.count() != 0 && timeout < TimePoint::max() - limit.made) limit.end = limit.made + timeout;
  if (outer < limit.end) limit.end = outer, limit.from = CallLimit::From::caller;
  return limit;
}

Ref<Invocation> OutgoingCalls::local(net::Call call) {
  return Ref<Invocation>(
      new Invocation(worker_.as_host_, worker_.id(), std::move(call), [this](net::Reply& reply) {
        if (reply.id)
          answered(worker_.id(), std::move(reply));
        else
          log_unanswered(reply);
      }));
}

std::string OutgoingCalls::crossing(const PendingCall& call) const {
  return "call of " + call.caller.label + " from " + worker_.name();
}

void OutgoingCalls::fail(const PendingCall& call, Error why) const {
  call.promise.fail(std::move(why).crossing(crossing(call)));
}

// `id`: of a call to an actor, or 0. `left` becomes true when the message has left; whatever is thrown then
// is the end of its callee.
void OutgoingCalls::send(WorkerId to, net::Call& call, uint64_t id, LateReplies* late, bool& left) {
  if (auto why = worker_.members_.absence(to)) throw *why;
  if (late)
    worker_.late_calls().send(to, call);
  else
    worker_.send(to, net::encode(call, worker_.placing(to)));
  left = true;
  if (id && !pending_.sent(id)) send_cancel(to, id);
  // Lost while the message was handed over: nobody else would end this call.
  if (auto why = worker_.members_.loss(to)) throw *why;
  if (late) late->left(to, id, call.late_number);
}

void OutgoingCalls::deliver(const PendingCall& pending, net::Reply reply) {
  const auto& interceptors = worker_.interceptors_;
  try {
    for (auto i = interceptors.rbegin(); i != interceptors.rend(); ++i)
      (*i)->incoming_reply(pending.caller, reply);
  } catch (...) {
    reply.result = Result<Value>(current_error());
  }
  if (reply.handed_over) {
    const bool asked = pending.straight && pending.straight->handed_over;
    if (asked) pending.straight->handed_over();
    // Nobody looks at it, if the callee is honest, unless it is the reference that was asked for.
    if (!asked || (reply.result.ok() && reply.result.value().is_null()))
      reply.result =
          Error(asked ? ErrorKind::cancelled : ErrorKind::invalid,
                "[call] " + worker_.members_.name_of(pending.caller.to) + " has sent the result elsewhere" +
                    (asked ? "" : ", which nobody had asked for"));
  }
  if (!reply.result.ok() && reply.result.error().trail().empty())  // it failed before it reached a method
    reply.result = Result<Value>(Error(reply.result.error()).crossing(crossing(pending)));
  pending.promise.complete(std::move(reply.result));
}

void OutgoingCalls::log_unanswered(const net::Reply& reply) const {
  if (!reply.result.ok() && reply.result.error().kind() != ErrorKind::cancelled)
    log::warning(worker_.name() + ": one-way call failed: " + reply.result.error().what());
}

void OutgoingCalls::answered(WorkerId by, net::Reply reply) {
  bool room = false;
  const auto waiting = pending_.take(reply.id, by, room);  // empty if it came after the deadline
  if (waiting && !waiting->no_result)
    deliver(*waiting, std::move(reply));
  else if (waiting && by == worker_.id())
    log_unanswered(reply);  // another worker logs what fails on it
  if (room) drain(by);
}

void OutgoingCalls::started(uint64_t id, WorkerId to) {
  bool room = false;
  pending_.started(id, to, room);
  if (room) drain(to);
}

// ---- calls that wait for room

// One thread at a time, so that they leave in their order.
void OutgoingCalls::drain(WorkerId to) {
  while (const auto next = pending_.next(to)) depart(to, *next);
}

void OutgoingCalls::depart(WorkerId to, const PendingCalls::Next& next) {
  if (next.local) {
    auto& invocation = static_cast<Invocation&>(*next.local);
    const bool kept = invocation.call().store_as;
    invocation.call().notify_start = next.notify_start && !kept;
    worker_.dispatch(Ref<Invocation>(&invocation));
    if (kept) has_left(next.id, to);
  } else {
    net::Call& call = *next.message;
    call.notify_start = next.notify_start && !call.store_as;
    bool left = false;
    try {
      send(to, call, next.id, next.late.get(), left);
      if (call.store_as) has_left(next.id, to);
    } catch (...) {
      Error why = current_error();
      if (!left)
        for (auto& i : worker_.interceptors_) i->call_not_sent(call);
      bool room = false;  // we are draining: the next one is looked for anyway
      if (auto waiting = pending_.not_sent(next.id, room)) fail(*waiting, std::move(why));
    }
  }
  next.left.set();
}

std::optional<PendingCall> OutgoingCalls::take_back(uint64_t id, WorkerId to) {
  bool room = false;
  auto call = pending_.not_sent(id, room);
  if (room) drain(to);
  return call;
}

// A call whose result stays: nothing is heard of it any more.
void OutgoingCalls::has_left(uint64_t id, WorkerId to) {
  if (const auto call = take_back(id, to)) call->promise.set(Value());
}

// It waited, and will not leave.
void OutgoingCalls::undo(const PendingCall& call) {
  if (!call.unsent) return;
  for (auto& i : worker_.interceptors_) i->call_not_sent(*call.unsent);
}

Error OutgoingCalls::overloaded(WorkerId to, const FlowControl::Sums& taken) const {
  const FlowLimits& limits = worker_.options_.limits;
  return Error(ErrorKind::overloaded,
               "[call] " + std::to_string(taken.bytes) + " bytes of " + std::to_string(taken.messages) +
                   " calls to worker " + worker_.members_.name_of(to) + " have not begun there, and " +
                   std::to_string(taken.waiting) + " calls wait for room; the limits are " +
                   std::to_string(limits.bytes) + " bytes to a worker and " +
                   std::to_string(limits.messages) +
                   " calls to an actor: try again later, or call with OnFull::wait");
}

// ---- calls that nobody waits for any more

void OutgoingCalls::give_up(uint64_t id) {
  const auto given_up = pending_.give_up(id);
  if (!given_up) return;
  tell(*given_up);
  const PendingCall& call = given_up->call;
  fail(call, Error(ErrorKind::cancelled, "[call] " + call.caller.label + " on " +
                                             worker_.members_.name_of(call.caller.to) +
                                             " was cancelled by its caller"));
}

void OutgoingCalls::give_up(uint64_t id, const Error& why) {
  const auto given_up = pending_.give_up(id);
  if (!given_up) return;
  tell(*given_up);
  given_up->call.promise.fail(why);
}

void OutgoingCalls::tell(const GivenUp& given_up) {
  const PendingCall& call = given_up.call;
  if (call.local)
    call.local->cancel();
  else if (given_up.tell)
    send_cancel(call.caller.to, given_up.id);
  undo(call);
}

void OutgoingCalls::send_cancel(WorkerId to, uint64_t id) {
  try {
    worker_.links_.send(to, net::encode(net::Cancel{id}));
  } catch (const Error&) {  // it is gone, or the link is full: the callee's own deadline is left
  }
}

void OutgoingCalls::end_all(WorkerId to, const std::function<Error(const PendingCall&)>& error) {
  for (auto& call : pending_.take_all(to)) {
    undo(call);
    call.promise.fail(error(call));
  }
}

// ---- deadlines

void OutgoingCalls::begin_time(uint64_t id, const CallLimit& limit) {
  if (pending_.begin(id, limit)) worker_.timer_.poke();
}

std::string OutgoingCalls::status_of(const PendingCall& call) const {
  if (call.left)
    return "It has not left " + worker_.name() + ": too much that has not begun is on its way to " +
           worker_.members_.name_of(call.caller.to) + " (FlowLimits).";
  if (call.local && call.status.empty())
    return worker_.call_status().text_of(static_cast<const Invocation&>(*call.local));
  return call.status;
}

TimePoint OutgoingCalls::expire() {
  const TimePoint now = worker_.clock().now();
  const PendingCalls::Expired expired = pending_.expire(now);
  for (const auto& [id, to, local] : expired.to_ask)
    if (local)
      pending_.note_status(id, worker_.call_status().text_of(static_cast<const Invocation&>(*local)));
    else
      worker_.call_status().ask(id, to);
  for (const GivenUp& given_up : expired.calls) {
    const PendingCall& call = given_up.call;
    const std::string to = worker_.members_.name_of(call.caller.to);
    const std::string status = status_of(call);
    tell(given_up);
    fail(call,
         Error(ErrorKind::deadline, overdue(call.caller.label + " on " + to, to, call.limit, now, status)));
  }
  return expired.next;
}

}  // namespace troupe::internal::actors
