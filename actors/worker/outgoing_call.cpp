#include "actors/worker/outgoing_call.h"

#include "actors/call_scope.h"
#include "actors/worker/worker.h"
#include "core/base/fork.h"
#include "core/graph/copy_on_write.h"
#include "core/graph/autocast.h"

namespace troupe::internal::actors {

OutgoingCall::OutgoingCall(OutgoingCalls& calls, const ObjectId& target, std::string label, uint64_t method,
                           ValueList args, CallOptions& options)
    : calls_(calls),
      worker_(calls.worker_),
      options_(options),
      to_(target.owner),
      to_actor_(target.number != 0),
      local_(target.owner == calls.worker_.id()),
      no_result_(options.one_way && to_actor_ && !options.store_as),
      promise_(pending_.promise),
      future_(promise_.future()) {
  pending_.caller = {to_, frame().context, current_cell(), std::move(label), options.joint};
  pending_.to_actor = to_actor_;
  pending_.by = frame().call.get();
  pending_.no_result = no_result_;
  pending_.uncancellable = options.uncancellable;
  call_.target = target;
  call_.method = method;
  call_.context = frame().context;
  call_.grad_enabled = grad_enabled();
  call_.halves = static_cast<uint8_t>(autocast_mode());
  call_.store_as = options.store_as;
  call_.no_result = no_result_;
  call_.joint = options.joint;
  call_.args = std::move(args);
  for (const LateReply& r : options.late) call_.late.push_back({r.index, r.from});
  if (to_actor_ && !options.one_way) CallScope::gather(future_);
}

Future<Value> OutgoingCall::leave() {
  try {
    check_worker();
    limit_time();
    call_.id = !options_.one_way || no_result_ ? calls_.pending_.next_id() : 0;
    expect_late_arguments();
    prepare();
    const PendingCalls::Added added = enter();
    if (added.verdict == PendingCalls::Added::waits) return wait_in_line(added);
    send();
    if (options_.in_line) calls_.has_left(id_, to_);
    if (options_.one_way) return Future<Value>::ready(Value());
    if (to_actor_ && !future_.is_ready()) let_future_give_up();
  } catch (...) {
    fail(current_error());
  }
  return future_;
}

void OutgoingCall::check_worker() const {
  check_process("call");
  calls_.check_open();
  if (worker_.interrupted_ && to_actor_) throw_error(ErrorKind::cancelled, "[call] interrupted");
}

void OutgoingCall::limit_time() {
  if (!no_result_) pending_.limit = calls_.limit_of(options_);
  if (!counts_its_time() || options_.uncancellable) return;
  const CallLimit& limit = pending_.limit;
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(limit.end - limit.made);
  if (left.count() <= 0)
    throw_error(ErrorKind::deadline, "[call] the deadline of the call being handled has passed");
  call_.timeout_us = left.count();
}

void OutgoingCall::expect_late_arguments() {
  if (options_.late.empty()) return;
  late_ = std::make_shared<LateReplies>(worker_.late_calls(), pending_.caller.label, std::move(options_.late),
                                        pending_.limit);
  future_.watch([late = late_](const Result<Value>& r) { late->ended(r.ok()); });
  pending_.straight = std::make_unique<PendingCall::Straight>(late_);
  if (options_.held) pending_.held = options_.held->shared_from_this();
  pending_.limit = {};  // it counts from the last argument
  if (frame().deadline != TimePoint::max())
    pending_.limit = {
        .made = worker_.clock().now(), .end = frame().deadline, .from = CallLimit::From::caller};
}

void OutgoingCall::prepare() {
  for (auto& i : worker_.interceptors_) {
    i->outgoing_call(pending_.caller, call_);
    ++prepared_;
  }
  visit_tensors(call_.args, internal::own_elements);
  bytes_ = to_actor_ && !options_.store_as ? net::packet_bytes(call_) : 0;
  if (options_.in_line) pending_.limit = {};  // its callee's alone, which has to hear of it in any case
  if (!local_) return;
  prepared_ = 0;
  invocation_ = calls_.local(std::move(call_));
  if (to_actor_) pending_.local = invocation_;
}

PendingCalls::Added OutgoingCall::enter() {
  net::Call& message = local_ ? invocation_->call() : call_;
  const uint64_t id = options_.in_line ? calls_.pending_.next_id() : message.id;
  if (!id) return {};
  const OnFull on_full =
      options_.in_line ? OnFull::wait : options_.on_full.value_or(worker_.options_.on_full);
  const auto added =
      calls_.pending_.add(id, std::move(pending_), &call_, message.target, bytes_, on_full, options_.held);
  if (added.sooner) worker_.timer_.poke();
  if (added.verdict == PendingCalls::Added::refused) throw calls_.overloaded(to_, added.taken);
  id_ = id;
  calls_.check_open();
  if (added.verdict != PendingCalls::Added::waits)
    message.notify_start = added.notify_start && !options_.in_line;
  return added;
}

Future<Value> OutgoingCall::wait_in_line(const PendingCalls::Added& added) {
  prepared_ = 0;
  if (added.drain) calls_.drain(to_);
  if (options_.in_line) return future_;
  if (!no_result_) let_future_give_up();
  const CallFrame& at = frame();
  if (!at.actor && !at.callback && worker_.options_.timer_thread) (void)added.left->wait();
  return no_result_ ? Future<Value>::ready(Value()) : future_;
}

void OutgoingCall::send() {
  if (local_) return worker_.dispatch(invocation_);
  bool left = false;
  try {
    calls_.send(to_, call_, to_actor_ ? id_ : 0, late_.get(), left);
  } catch (...) {
    if (left) prepared_ = 0;
    throw;
  }
  prepared_ = 0;
}

void OutgoingCall::let_future_give_up() {
  if (!options_.uncancellable) promise_.waits_for(Canceller::source(worker_.canceller_, id_));
}

void OutgoingCall::fail(Error why) {
  for (size_t i = 0; i < prepared_; ++i) worker_.interceptors_[i]->call_not_sent(call_);
  if (!id_) return calls_.fail(pending_, std::move(why));
  if (const auto pending = calls_.take_back(id_, to_)) calls_.fail(*pending, std::move(why));
}

Future<Value> OutgoingCalls::call(const ObjectId& target, std::string label, uint64_t method, ValueList args,
                                  CallOptions options) {
  return OutgoingCall(*this, target, std::move(label), method, std::move(args), options).leave();
}

}  // namespace troupe::internal::actors
