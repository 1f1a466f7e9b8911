// Calls to others: how they leave, and how each of them ends.
#include "actors/call_scope.h"
#include "actors/worker/guests.h"
#include "actors/worker/worker.h"
#include "core/base/fork.h"
#include "core/base/log.h"
#include "core/graph/copy_on_write.h"
#include "core/graph/node.h"

namespace troupe::internal::actors {

void Worker::set_timeout(Duration timeout) {
  if (timeout.count() < 0)
    throw_invalid("[cluster] a timeout of " + std::to_string(timeout.count()) +
                  " ns; expected zero (none) or more");
  timeout_ns_ = timeout.count();
}

net::DevicePlacing Worker::placing(WorkerId to) const {
  net::DevicePlacing placing{.in_memory = transport_ && transport_->carries_devices(),
                             .ways = is_guest(to) ? nullptr : ways_,
                             .to = to};
  if (options_.device_maps.empty()) return placing;
  const auto found = options_.device_maps.find(members_.name_of(to));
  if (found != options_.device_maps.end()) placing.map = &found->second;
  return placing;
}

void Worker::send(WorkerId to, net::Message message) {
  const auto beside = std::move(message.beside);
  links_.send(to, std::move(message));
  if (beside) beside->follow();
}

CallLimit Worker::limit_of(const CallOptions& options) const {
  const Duration timeout = options.timeout.value_or(this->timeout());
  if (timeout.count() < 0)
    throw_error(ErrorKind::deadline,
                "[call] a timeout of " + text_of(timeout) +
                    " has passed before the call: nothing was sent; expected more than 0, "
                    "or 0 for no limit");
  CallLimit limit{.from = options.timeout ? CallLimit::From::call : CallLimit::From::worker};
  const TimePoint outer = frame().deadline;
  if (timeout.count() == 0 && outer == TimePoint::max()) return limit;
  limit.made = clock().now();
  // A limit beyond what the clock can count is none.
  if (timeout.count() != 0 && timeout < TimePoint::max() - limit.made) limit.end = limit.made + timeout;
  if (outer < limit.end) limit.end = outer, limit.from = CallLimit::From::caller;
  return limit;
}

Future<Value> Worker::call(const ObjectId& target, std::string label, uint64_t method, ValueList args,
                           CallOptions options) {
  const bool to_actor = target.number != 0, local = target.owner == id();
  const bool no_result =
      options.one_way && to_actor && !options.store_as;  // handled whatever becomes of who told
  PendingCall pending;
  pending.caller = {target.owner, frame().context, current_cell(), std::move(label), options.joint};
  pending.to_actor = to_actor;
  pending.by = frame().call.get();
  pending.no_result = no_result;
  pending.uncancellable = options.uncancellable;
  const Promise<Value> promise = pending.promise;
  const auto future = promise.future();
  if (to_actor && !options.one_way) CallScope::gather(future);
  const CallerState caller = pending.caller;
  uint64_t id = 0;  // of the reply
  net::Call call;
  Ref<Invocation> invocation;  // of a local call
  std::shared_ptr<LateReplies> late;
  size_t prepared = 0;  // interceptors that have to undo if the call is not sent
  try {
    check_process("call");
    if (stopped_) throw_error(ErrorKind::cancelled, "[call] worker " + name() + " has been shut down");
    if (interrupted_ && to_actor) throw_error(ErrorKind::cancelled, "[call] interrupted");
    call.target = target;
    call.method = method;
    call.context = caller.context;
    call.grad_enabled = grad_enabled();
    call.store_as = options.store_as;
    call.no_result = no_result;
    call.joint = options.joint;
    call.args = std::move(args);
    if (!no_result) pending.limit = limit_of(options);
    for (const LateReply& r : options.late) call.late.push_back({r.index, r.from});
    if (const CallLimit& limit = pending.limit; limit.end != TimePoint::max()) {
      const auto left = std::chrono::duration_cast<std::chrono::microseconds>(limit.end - limit.made);
      if (left.count() <= 0 && !options.uncancellable)
        throw_error(ErrorKind::deadline, "[call] the deadline of the call being handled has passed");
      if (!options.uncancellable) call.timeout_us = left.count();
    }
    call.id = !options.one_way || no_result ? pending_.next_id() : 0;
    if (!options.late.empty()) {
      late = std::make_shared<LateReplies>(*this, caller.label, std::move(options.late), pending.limit);
      future.watch([late](const Result<Value>& r) { late->ended(r.ok()); });
      pending.straight = std::make_unique<PendingCall::Straight>(late);
      if (options.held) pending.held = options.held->shared_from_this();
      pending.limit = {};  // it counts from the last argument
      if (frame().deadline != TimePoint::max())
        pending.limit = {.made = clock().now(), .end = frame().deadline, .from = CallLimit::From::caller};
    }
    for (auto& i : interceptors_) {
      i->outgoing_call(caller, call);
      ++prepared;
    }
    visit_tensors(call.args, own_elements);
    const size_t bytes = to_actor && !options.store_as ? net::packet_bytes(call) : 0;
    id = options.in_line ? pending_.next_id() : call.id;
    if (options.in_line) pending.limit = {};  // its callee's alone, which has to hear of it in any case
    if (local) {
      prepared = 0;
      invocation =
          Ref<Invocation>(new Invocation(as_host_, this->id(), std::move(call), [this](net::Reply& reply) {
            if (reply.id)
              answered(this->id(), std::move(reply));
            else
              log_unanswered(reply);
          }));
      if (to_actor) pending.local = invocation;
    }
    net::Call& message = local ? invocation->call() : call;
    if (id) {
      const auto added = pending_.add(
          id, std::move(pending), &call, target, bytes,
          options.in_line ? OnFull::wait : options.on_full.value_or(options_.on_full), options.held);
      if (added.sooner) {
        Lock lock(timer_mutex_);
        timer_poked_ = true;
        timer_wake_.notify_one();
      }
      if (added.verdict == PendingCalls::Added::refused) throw overloaded(target.owner, added.taken);
      if (stopped_) throw_error(ErrorKind::cancelled, "[call] worker " + name() + " has been shut down");
      if (added.verdict == PendingCalls::Added::waits) {
        prepared = 0;
        if (added.drain) drain(target.owner);
        if (options.in_line) return future;
        if (!no_result && !options.uncancellable) promise.waits_for(Canceller::source(canceller_, id));
        const CallFrame& at = frame();
        if (!at.actor && !at.callback && options_.timer_thread) (void)added.left->wait();
        return no_result ? Future<Value>::ready(Value()) : future;
      }
      message.notify_start = added.notify_start && !options.in_line;
    }
    if (local) {
      dispatch(invocation);
    } else {
      if (auto why = members_.absence(target.owner)) throw *why;
      if (late)
        send_late(target.owner, call, placing(target.owner));
      else
        send(target.owner, net::encode(call, placing(target.owner)));
      prepared = 0;
      if (id && to_actor && !pending_.sent(id)) send_cancel(target.owner, id);
      // Lost while the message was handed over: nobody else would end this call.
      if (auto why = members_.loss(target.owner)) throw *why;
      if (late) late->left(target.owner, id, call.late_number);
    }
    if (options.in_line) has_left(id, target.owner);
    if (options.one_way) return Future<Value>::ready(Value());
    if (to_actor && !options.uncancellable && !future.is_ready())
      promise.waits_for(Canceller::source(canceller_, id));
  } catch (...) {
    Error error = current_error();
    for (size_t i = 0; i < prepared; ++i) interceptors_[i]->call_not_sent(call);
    if (id) {
      bool room = false;
      pending_.not_sent(id, room);
      if (room) drain(target.owner);
    }
    promise.fail(std::move(error).crossing("call of " + caller.label + " from " + name()));
  }
  return future;
}

Future<Value> Worker::call_service(WorkerId to, const std::string& service, ValueList args,
                                   CallOptions options) {
  return call(ObjectId{to, kNoWorker, 0}, service, net::method_id(service), std::move(args), options);
}

void Worker::deliver_reply(const PendingCall& pending, net::Reply reply) {
  try {
    for (auto i = interceptors_.rbegin(); i != interceptors_.rend(); ++i)
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
                "[call] " + members_.name_of(pending.caller.to) + " has sent the result elsewhere" +
                    (asked ? "" : ", which nobody had asked for"));
  }
  if (!reply.result.ok() && reply.result.error().trail().empty())  // it failed before it reached a method
    reply.result = Result<Value>(
        Error(reply.result.error()).crossing("call of " + pending.caller.label + " from " + name()));
  pending.promise.complete(std::move(reply.result));
}

// Of a call whose caller waits for no answer. One that was cancelled has no caller any more.
void Worker::log_unanswered(const net::Reply& reply) const {
  if (!reply.result.ok() && reply.result.error().kind() != ErrorKind::cancelled)
    log::warning(name() + ": one-way call failed: " + reply.result.error().what());
}

void Worker::answered(WorkerId by, net::Reply reply) {
  bool room = false;
  const auto waiting = pending_.take(reply.id, by, room);  // empty if it came after the deadline
  if (waiting && !waiting->no_result)
    deliver_reply(*waiting, std::move(reply));
  else if (waiting && by == id())
    log_unanswered(reply);  // another worker logs what fails on it
  if (room) drain(by);
}

// ---- calls that wait for room

// One thread at a time, so that they leave in their order.
void Worker::drain(WorkerId to) {
  while (const auto next = pending_.next(to)) depart(to, *next);
}

void Worker::depart(WorkerId to, const PendingCalls::Next& next) {
  if (next.local) {
    auto& invocation = static_cast<Invocation&>(*next.local);
    const bool kept = invocation.call().store_as;
    invocation.call().notify_start = next.notify_start && !kept;
    dispatch(Ref<Invocation>(&invocation));
    if (kept) has_left(next.id, to);
  } else {
    net::Call& call = *next.message;
    call.notify_start = next.notify_start && !call.store_as;
    bool left = false;
    try {
      if (auto why = members_.absence(to)) throw *why;
      if (next.late)
        send_late(to, call, placing(to));
      else
        send(to, net::encode(call, placing(to)));
      left = true;
      if (!pending_.sent(next.id)) send_cancel(to, next.id);
      if (auto why = members_.loss(to)) throw *why;
      if (next.late) next.late->left(to, next.id, call.late_number);
      if (call.store_as) has_left(next.id, to);
    } catch (...) {
      Error why = current_error();
      if (!left)
        for (auto& i : interceptors_) i->call_not_sent(call);
      bool room = false;  // we are draining: the next one is looked for anyway
      if (auto waiting = pending_.not_sent(next.id, room))
        waiting->promise.fail(
            std::move(why).crossing("call of " + waiting->caller.label + " from " + name()));
    }
  }
  next.left.set();
}

// A call whose result stays: nothing is heard of it any more.
void Worker::has_left(uint64_t id, WorkerId to) {
  bool room = false;
  const auto call = pending_.not_sent(id, room);
  if (room) drain(to);
  if (call) call->promise.set(Value());
}

// It waited, and will not leave.
void Worker::undo(const PendingCall& call) {
  if (!call.unsent) return;
  for (auto& i : interceptors_) i->call_not_sent(*call.unsent);
}

void Worker::notify_started(WorkerId caller, uint64_t call) {
  if (caller != id()) {
    try {
      links_.send(caller, net::encode(net::Started{call}));
    } catch (const Error&) {  // it is gone
    }
    return;
  }
  bool room = false;
  pending_.started(call, caller, room);
  if (room) drain(caller);
}

Error Worker::overloaded(WorkerId to, const FlowControl::Sums& taken) const {
  return Error(ErrorKind::overloaded,
               "[call] " + std::to_string(taken.bytes) + " bytes of " + std::to_string(taken.messages) +
                   " calls to worker " + members_.name_of(to) + " have not begun there, and " +
                   std::to_string(taken.waiting) + " calls wait for room; the limits are " +
                   std::to_string(options_.limits.bytes) + " bytes to a worker and " +
                   std::to_string(options_.limits.messages) +
                   " calls to an actor: try again later, or call with OnFull::wait");
}

// Others wait for threads that run callbacks: calls made there never block.
CallFrame Worker::callback_frame() {
  CallFrame at = frame();
  at.callback = true;
  return at;
}

// ---- calls that nobody waits for any more

void Worker::give_up(uint64_t id) {
  if (const auto call = pending_.give_up(id))
    end(*call, Error(ErrorKind::cancelled, "[call] " + call->call.caller.label + " on " +
                                               members_.name_of(call->call.caller.to) +
                                               " was cancelled by its caller"));
}

void Worker::tell(const GivenUp& given_up) {
  const PendingCall& call = given_up.call;
  if (call.local)
    call.local->cancel();
  else if (given_up.tell)
    send_cancel(call.caller.to, given_up.id);
  undo(call);
}

void Worker::end(const GivenUp& given_up, Error why) {
  tell(given_up);
  const PendingCall& call = given_up.call;
  call.promise.fail(std::move(why).crossing("call of " + call.caller.label + " from " + name()));
}

void Worker::send_cancel(WorkerId to, uint64_t id) {
  try {
    links_.send(to, net::encode(net::Cancel{id}));
  } catch (const Error&) {  // it is gone, or the link is full: the callee's own deadline is left
  }
}

// ---- deadlines

TimePoint Worker::tick() {
  CallFrameScope scope(callback_frame());
  const TimePoint now = clock().now();
  const PendingCalls::Expired expired = pending_.expire(now);
  for (const auto& [id, to, local] : expired.to_ask)
    if (local)
      pending_.note_status(id, status_of(static_cast<const Invocation&>(*local)));
    else
      ask_for_status(id, to);
  for (const GivenUp& given_up : expired.calls) {
    const PendingCall& call = given_up.call;
    const std::string to = members_.name_of(call.caller.to);
    std::string status = call.status;
    if (call.left)
      status = "It has not left " + name() + ": too much that has not begun is on its way to " + to +
               " (FlowLimits).";
    else if (call.local && status.empty())
      status = status_of(static_cast<const Invocation&>(*call.local));
    end(given_up,
        Error(ErrorKind::deadline, overdue(call.caller.label + " on " + to, to, call.limit, now, status)));
  }
  return expired.next;
}

void Worker::timer_loop() {
  for (;;) {
    const TimePoint next = tick();
    Lock lock(timer_mutex_);
    const auto woken = [&]() TROUPE_REQUIRES(timer_mutex_) { return stopping_ || timer_poked_; };
    if (next == TimePoint::max())
      timer_wake_.wait(lock.native(), woken);
    else
      timer_wake_.wait_until(lock.native(), next, woken);
    timer_poked_ = false;
    if (stopping_) return;
  }
}

}  // namespace troupe::internal::actors
