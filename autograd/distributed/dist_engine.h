// One worker's part in distributed autograd: it records what crosses actors, runs gradients back, and forgets
// contexts. An interceptor of calls: the call layer knows nothing of gradients.
//
// Locks. Contexts, Passes, TaskRunner and each ContextState have a mutex. A thread that holds one of the
// first three takes neither of the other two; with that of Contexts it may take the one of a ContextState,
// and with any those that members and the profiler hold for a moment. Under none of them does a message leave
// or a callback run.
#pragma once
#include "autograd/distributed/contexts.h"
#include "autograd/distributed/group_gradients.h"
#include "autograd/distributed/outbox.h"
#include "autograd/distributed/passes.h"
#include "autograd/distributed/recorder.h"
#include "autograd/distributed/task_runner.h"

namespace troupe::autograd {

/// Makes what takes part, and tells it of the end of others and of this worker. Thread-safe.
class DistEngine final : public internal::actors::Interceptor {
 public:
  /// Adds interceptor, services and metrics to the worker, which owns it.
  static DistEngine& install(internal::actors::Worker& worker);

  internal::actors::Worker& worker() { return worker_; }
  Contexts& contexts() { return contexts_; }
  Passes& passes() { return passes_; }
  GroupGradients& group_gradients() { return group_gradients_; }

  // ---- internal::actors::Interceptor
  void outgoing_call(const internal::actors::CallerState& caller, internal::net::Call& call) override {
    recorder_.outgoing_call(caller, call);
  }
  void call_not_sent(internal::net::Call& call) override { recorder_.call_not_sent(call); }
  void incoming_call(internal::actors::Invocation& invocation) override {
    recorder_.incoming_call(invocation);
  }
  void outgoing_reply(internal::actors::Invocation& invocation, internal::net::Reply& reply) override {
    recorder_.outgoing_reply(invocation, reply);
  }
  void reply_not_sent(internal::actors::Invocation& invocation, internal::net::Reply& reply) override {
    recorder_.reply_not_sent(invocation, reply);
  }
  void incoming_reply(const internal::actors::CallerState& caller, internal::net::Reply& reply) override {
    recorder_.incoming_reply(caller, reply);
  }
  void worker_lost(WorkerId id, const Error& why) override;
  void interrupted(const Error& why) override { passes_.fail_all(why); }
  void stop() override;

 private:
  explicit DistEngine(internal::actors::Worker& worker);
  void add_metrics(std::map<std::string, int64_t>& metrics) const;

  internal::actors::Worker& worker_;
  Outbox outbox_;
  Contexts contexts_;
  Recorder recorder_;
  GroupGradients group_gradients_;
  TaskRunner runner_;
  Passes passes_;
};

}  // namespace troupe::autograd
