// One call on its way through the callee: from its arrival until its reply has been handed over.
#pragma once
#include <atomic>
#include <functional>
#include <memory>

#include "actors/runtime.h"
#include "net/wire.h"

namespace troupe::actors {

class ActorCell;
class Worker;

/// Completed exactly once: by complete() or fail(), or with `failed` when the last reference goes. As a Job
/// it runs the method in its actor's mailbox.
class Invocation final : public Job {
 public:
  /// Takes the reply to the caller, or throws if it cannot be sent. Called on the thread that completes.
  using Deliver = std::function<void(net::Reply&)>;

  Invocation(Worker& worker, WorkerId from, net::Call call, Deliver deliver);
  ~Invocation() override;

  void complete(Result<Value> result);
  void complete(Value value) { complete(Result<Value>(std::move(value))); }
  /// The error crosses this call: its trail names method, worker and actor.
  void fail(Error error);
  void run() override;

  Worker& worker() const { return worker_; }
  WorkerId from() const { return from_; }
  net::Call& call() { return call_; }
  TimePoint deadline() const { return deadline_; }
  /// The actor called; null for a service.
  const std::shared_ptr<ActorCell>& cell() const { return cell_; }
  /// Which of the actor's methods; set with the cell.
  size_t method() const { return method_; }
  void set_target(std::shared_ptr<ActorCell> cell, size_t method);

 private:
  void deliver(net::Reply& reply);

  Worker& worker_;
  WorkerId from_;
  net::Call call_;
  Deliver deliver_;
  TimePoint deadline_;
  std::shared_ptr<ActorCell> cell_;
  size_t method_ = 0;
  std::atomic<bool> completed_{false};
};

}  // namespace troupe::actors
