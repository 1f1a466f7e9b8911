// Calls to others: how they leave, and how each of them ends.
#include "actors/worker.h"
#include "core/node.h"

namespace troupe::actors {

TimePoint Worker::deadline_for(const CallOptions& options) const {
  const Duration timeout = options.timeout.count() < 0 ? options_.timeout : options.timeout;
  const TimePoint own = timeout.count() == 0 ? TimePoint::max() : clock().now() + timeout;
  return std::min(own, frame().deadline);
}

Future<Value> Worker::call(const ObjectId& target, std::string label, uint64_t method, ValueList args,
                           CallOptions options) {
  PendingCall pending;
  pending.caller = {target.owner, frame().context, current_cell(), std::move(label)};
  pending.to_actor = target.number != 0;
  const Promise<Value> promise = pending.promise;
  const auto future = promise.future();
  const CallerState caller = pending.caller;
  const bool local = target.owner == id();
  uint64_t id = 0;  // of the reply
  net::Call call;
  Ref<Invocation> invocation;  // of a local call
  size_t prepared = 0;         // interceptors that have to undo if the call is not sent
  try {
    if (stopped_) throw_error(ErrorKind::cancelled, "[call] worker " + name() + " has been shut down");
    if (interrupted_ && target.number) throw_error(ErrorKind::cancelled, "[call] interrupted");
    call.target = target;
    call.method = method;
    call.context = caller.context;
    call.grad_enabled = grad_enabled();
    call.keep = options.keep;
    call.args = std::move(args);
    pending.deadline = deadline_for(options);
    if (pending.deadline != TimePoint::max()) {
      const auto left =
          std::chrono::duration_cast<std::chrono::microseconds>(pending.deadline - clock().now());
      if (left.count() <= 0)
        throw_error(ErrorKind::deadline, "[call] the deadline of the call being handled has passed");
      call.timeout_us = left.count();
    }
    for (auto& i : interceptors_) {
      i->outgoing_call(caller, call);
      ++prepared;
    }
    if (local) {
      prepared = 0;
      invocation =
          Ref<Invocation>(new Invocation(*this, this->id(), std::move(call), [this](net::Reply& reply) {
            if (auto waiting = pending_.take(reply.id, this->id())) deliver_reply(*waiting, std::move(reply));
          }));
      if (target.number) pending.local = invocation;
    }
    if (!options.one_way) {
      bool sooner = false;
      id = pending_.add(std::move(pending), sooner);
      (local ? invocation->call() : call).id = id;
      if (sooner) {
        std::lock_guard lock(timer_mutex_);
        timer_poked_ = true;
        timer_wake_.notify_one();
      }
      if (stopped_) throw_error(ErrorKind::cancelled, "[call] worker " + name() + " has been shut down");
    }
    if (local) {
      dispatch(invocation);
    } else {
      links_.send(target.owner, net::encode(call));
      prepared = 0;
      if (id && target.number && !pending_.sent(id)) send_cancel(target.owner, id);
      // Lost while the message was handed over: nobody else would end this call.
      if (auto why = members_.loss(target.owner)) throw *why;
    }
    if (options.one_way) promise.set(Value());
    if (id && target.number && !future.is_ready()) promise.waits_for(Canceller::source(canceller_, id));
  } catch (...) {
    Error error = current_error();
    for (size_t i = 0; i < prepared; ++i) interceptors_[i]->call_not_sent(call);
    if (id) pending_.not_sent(id);
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
  if (!reply.result.ok() && reply.result.error().trail().empty())  // it failed before it reached a method
    reply.result = Result<Value>(
        Error(reply.result.error()).crossing("call of " + pending.caller.label + " from " + name()));
  pending.promise.complete(std::move(reply.result));
}

// ---- calls that nobody waits for any more

void Worker::give_up(uint64_t id) {
  if (const auto call = pending_.give_up(id))
    end(*call, Error(ErrorKind::cancelled, "[call] " + call->call.caller.label + " on " +
                                               members_.name_of(call->call.caller.to) +
                                               " was cancelled by its caller"));
}

void Worker::end(const GivenUp& given_up, Error why) {
  const PendingCall& call = given_up.call;
  if (call.local)
    call.local->cancel();
  else if (given_up.tell)
    send_cancel(call.caller.to, given_up.id);
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
  TimePoint next;
  for (const auto& call : pending_.expire(clock().now(), next))
    end(call, Error(ErrorKind::deadline, "[call] " + call.call.caller.label + " on " +
                                             members_.name_of(call.call.caller.to) +
                                             " gave no answer before the deadline"));
  return next;
}

void Worker::timer_loop() {
  for (;;) {
    const TimePoint next = tick();
    std::unique_lock lock(timer_mutex_);
    auto woken = [&] { return stopping_ || timer_poked_; };
    if (next == TimePoint::max())
      timer_wake_.wait(lock, woken);
    else
      timer_wake_.wait_until(lock, next, woken);
    timer_poked_ = false;
    if (stopping_) return;
  }
}

}  // namespace troupe::actors
