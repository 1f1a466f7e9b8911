// One call on its way through the callee: from its arrival until its reply has been handed over.
#pragma once
#include <atomic>
#include <coroutine>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <typeindex>

#include "actors/calls/hand_over.h"
#include "actors/calls/traffic.h"
#include "actors/frame_slots.h"
#include "actors/runtime/cancellable.h"
#include "net/wire/wire.h"

namespace troupe::internal::actors {

class ActorCell;
class IncomingCalls;
class Suspension;
class Worker;
struct ActorHost;

/// Completed exactly once: by complete() or fail(), or with `failed` when the last reference goes. As a Job
/// it runs the method in its actor's mailbox.
class Invocation final : public Cancellable {
 public:
  /// Takes the reply to the caller, or throws if it cannot be sent. Called on the thread that completes.
  using Deliver = std::function<void(net::Reply&)>;

  Invocation(const ActorHost& host, WorkerId from, net::Call call, Deliver deliver);
  ~Invocation() override;

  void complete(Result<Value> result);
  void complete(Value value);
  /// The error crosses this call: its trail names method, worker and actor.
  void fail(Error error);
  /// The same for what the method threw, which is logged as well (info).
  void threw(Error error);
  void run() override;
  void cancel() override;
  bool cancelled() const { return state_.load(std::memory_order_acquire) & kCancelled; }
  /// Its result goes there, if it has not ended.
  void hand_over(const HandOver& how) { hand_over_.ask(how); }
  /// Its last argument is here: its time begins now.
  void begin_time() { deadline_ = deadline_of_now(); }
  /// Into the table of calls that can be cancelled, until it is completed.
  bool list(IncomingCalls& calls);

  const ActorHost& host() const { return host_; }
  Worker& worker() const;
  WorkerId from() const { return from_; }
  net::Call& call() { return call_; }
  const net::Call& call() const { return call_; }
  TimePoint deadline() const { return deadline_; }
  /// The actor called; null for a service.
  const std::shared_ptr<ActorCell>& cell() const { return cell_; }
  /// The call that this one is part of (call_inline.h), or itself.
  const Invocation& outermost() const { return within_ ? within_->outermost() : *this; }
  void set_within(Ref<Invocation> call) { within_ = std::move(call); }
  /// Which of the actor's methods; set with the cell.
  size_t method() const { return method_; }
  void set_target(std::shared_ptr<ActorCell> cell, size_t method);
  // ---- for others, while it is under way
  /// cell(), or null as long as that is not known.
  std::shared_ptr<ActorCell> target_cell() const {
    return state_.load(std::memory_order_acquire) & kTargeted ? cell_ : nullptr;
  }
  /// When the method began; TimePoint::min(): it has not.
  TimePoint began() const { return TimePoint(Duration(began_.load(std::memory_order_relaxed))); }
  /// What upper layers keep with the call, one object of each type, as ActorCell::keep(). In its mailbox.
  template <class T>
  T& keep() const {
    if (!kept_) kept_ = std::make_unique<std::map<std::type_index, std::shared_ptr<void>>>();
    auto& object = (*kept_)[typeid(T)];
    if (!object) object = std::make_shared<T>();
    return *static_cast<T*>(object.get());
  }
  /// What this_call::waits_for() said last; empty: nothing.
  std::string waits_for() const;
  void set_waits_for(std::string what);

  // ---- for coroutines: of methods, in the mailbox; or of a call without an actor (start_task.h), anywhere
  /// The outermost coroutine: destroying it destroys all those that it waits for.
  void runs_as(std::coroutine_handle<> coroutine) { coroutine_ = coroutine; }
  /// The coroutine waits.
  void waits_in(std::shared_ptr<Suspension> suspension);
  /// Instead of going on, once cancelled: destroys the coroutine.
  void stop();

 private:
  void deliver(net::Reply& reply);
  TimePoint deadline_of_now() const;
  Duration queued_until(TimePoint start) const;

  const ActorHost& host_;
  WorkerId from_;
  net::Call call_;
  Deliver deliver_;
  TimePoint deadline_;
  std::shared_ptr<ActorCell> cell_;
  Ref<Invocation> within_;
  Traffic::Busy busy_;  // ends before the cell is let go of, and with it perhaps the worker
  size_t method_ = 0;
  IncomingCalls* listed_in_ = nullptr;
  std::coroutine_handle<> coroutine_;
  std::shared_ptr<Suspension> suspension_;  // the last one
  enum : uint8_t { kCompleted = 1, kCancelled = 2, kListed = 4, kTargeted = 8 };
  std::atomic<uint8_t> state_{0};
  std::atomic<int64_t> began_{TimePoint::min().time_since_epoch().count()};
  std::unique_ptr<std::string> waits_for_;  // under one mutex of all
  HandOverSlot hand_over_;
  mutable std::unique_ptr<std::map<std::type_index, std::shared_ptr<void>>> kept_;
};

}  // namespace troupe::internal::actors
