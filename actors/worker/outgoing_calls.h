// Calls of a worker to others and to itself: how they leave, and how each of them ends.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "actors/calls/call_options.h"
#include "actors/calls/pending_calls.h"
#include "core/async/future.h"
#include "net/wire/wire.h"

namespace troupe::internal::actors {

class Invocation;
class LateReplies;
class Worker;

/// Thread-safe.
class OutgoingCalls {
 public:
  explicit OutgoingCalls(Worker& worker);

  /// Worker::call().
  Future<Value> call(const ObjectId& target, std::string label, uint64_t method, ValueList args,
                     CallOptions options);
  void answered(WorkerId by, net::Reply reply);
  /// The callee, on worker `to`, has begun.
  void started(uint64_t id, WorkerId to);
  /// Nobody wants the result of call `id` of an actor's method: it fails with `cancelled`, and its callee is
  /// told. Nothing if it has ended.
  void give_up(uint64_t id);
  /// It fails with that error, as it is.
  void give_up(uint64_t id, const Error& why);
  /// The time of a call that had none begins.
  void begin_time(uint64_t id, const CallLimit& limit);
  /// All calls to one worker, or with kNoWorker all, end with what `error` makes for them.
  void end_all(WorkerId to, const std::function<Error(const PendingCall&)>& error);
  /// Fails those whose time has passed, asks for the status of those whose time is nearly over; when to come
  /// again.
  TimePoint expire();

  const PendingCalls& pending() const { return pending_; }
  PendingCalls& pending() { return pending_; }
  /// "call of Layer::forward from w0", where an error has passed.
  std::string crossing(const PendingCall& call) const;
  /// The answer of a call whose caller waits for none. One that was cancelled has no caller any more.
  void log_unanswered(const net::Reply& reply) const;

 private:
  friend class OutgoingCall;
  void check_open() const;
  CallLimit limit_of(const CallOptions& options) const;
  Ref<Invocation> local(net::Call call);
  Error overloaded(WorkerId to, const FlowControl::Sums& taken) const;
  void send(WorkerId to, net::Call& call, uint64_t id, LateReplies* late, bool& left);
  void drain(WorkerId to);
  void depart(WorkerId to, const PendingCalls::Next& next);
  void has_left(uint64_t id, WorkerId to);
  std::optional<PendingCall> take_back(uint64_t id, WorkerId to);
  void fail(const PendingCall& call, Error why) const;
  void deliver(const PendingCall& call, net::Reply reply);
  void tell(const GivenUp& call);
  void undo(const PendingCall& call);
  void send_cancel(WorkerId to, uint64_t id);
  std::string status_of(const PendingCall& call) const;

  Worker& worker_;
  PendingCalls pending_;
};

}  // namespace troupe::internal::actors
