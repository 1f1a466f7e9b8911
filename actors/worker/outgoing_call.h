// One call of a worker on its way out.
#pragma once
#include <memory>
#include <string>

#include "actors/calls/call_options.h"
#include "actors/calls/pending_calls.h"
#include "actors/cell/invocation.h"
#include "actors/worker/late_replies.h"
#include "actors/worker/outgoing_calls.h"

namespace troupe::internal::actors {

/// Made, used once and dropped on the caller's thread.
class OutgoingCall {
 public:
  /// `options` outlive it; what they have is taken.
  OutgoingCall(OutgoingCalls& calls, const ObjectId& target, std::string label, uint64_t method,
               ValueList args, CallOptions& options);
  /// It leaves, stands in line for room, or its future fails.
  Future<Value> leave();

 private:
  bool counts_its_time() const { return pending_.limit.end != TimePoint::max(); }
  void check_worker() const;
  void limit_time();
  void expect_late_arguments();
  void prepare();
  PendingCalls::Added enter();
  Future<Value> wait_in_line(const PendingCalls::Added& added);
  void send();
  void fail(Error why);
  void let_future_give_up();

  OutgoingCalls& calls_;
  Worker& worker_;
  CallOptions& options_;
  const WorkerId to_;
  const bool to_actor_, local_;
  const bool no_result_;  // handled whatever becomes of who told
  PendingCall pending_;   // until it enters
  const Promise<Value> promise_;
  const Future<Value> future_;
  net::Call call_;
  uint64_t id_ = 0;                    // of the reply; of a call that has entered
  Ref<Invocation> invocation_;         // of a local call
  std::shared_ptr<LateReplies> late_;  // of one that leaves before its arguments are there
  size_t bytes_ = 0;
  size_t prepared_ = 0;  // interceptors that have to undo if the call is not sent
};

}  // namespace troupe::internal::actors
