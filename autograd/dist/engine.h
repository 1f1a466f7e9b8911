// One worker's part in distributed autograd: it records what crosses actors, runs gradients back, and forgets
// contexts. An interceptor of calls: the call layer knows nothing of gradients.
//
// A gradient message runs back, as a job in its actor's mailbox, the part of the graph that it enters:
// forward, backward and optimizer steps of an actor never race. Each message is a pass of its own over what
// it reaches. Gradients are linear, so the sum over the messages is right whichever of the recorded results
// the loss used, and nothing ever waits for a gradient that will not come. (What two messages share is run
// twice; the graph and what it saved live until the context ends.)
#pragma once
#include <array>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/interceptor.h"
#include "actors/worker.h"
#include "autograd/dist/context_state.h"
#include "autograd/dist/termination.h"

namespace troupe::autograd {

/// Thread-safe.
class DistEngine final : public actors::Interceptor {
 public:
  /// Adds interceptor, services and metrics to the worker, which owns it.
  static DistEngine& install(actors::Worker& worker);

  // ---- contexts that start here
  uint64_t new_context();
  /// Forgets the context here and at once, and tells the others. Ready when it is forgotten everywhere;
  /// without `wait`, when they have been told.
  Future<void> release(uint64_t context, bool wait);
  /// Runs gradients back from `roots`. Ready when every gradient is in the context of the worker that owns
  /// its leaf.
  Future<void> backward(uint64_t context, std::vector<Edge> roots, Tensors grads);
  /// Names of the workers that unfinished passes of the context wait for, and gives these passes up with
  /// `why`.
  void abandon(uint64_t context, const Error& why);
  std::vector<std::string> waiting_for(uint64_t context);

  /// Gradient of a leaf of this worker; undefined if none arrived.
  Tensor gradient(uint64_t context, const Tensor& leaf);

  // ---- actors::Interceptor
  void outgoing_call(const actors::CallerState& caller, net::Call& call) override;
  void call_not_sent(net::Call& call) override;
  void incoming_call(actors::Invocation& invocation) override;
  void outgoing_reply(actors::Invocation& invocation, net::Reply& reply) override;
  void incoming_reply(const actors::CallerState& caller, net::Reply& reply) override;
  void worker_lost(WorkerId id, const Error& why) override;
  void interrupted(const Error& why) override { abandon_all(why); }
  void stop() override;

 private:
  void abandon_all(const Error& why);
  explicit DistEngine(actors::Worker& worker);
  using StatePtr = std::shared_ptr<ContextState>;
  struct Pass {  // on its originator
    Pass(uint64_t context, SentGrad first) : context(context), termination(first) {}
    uint64_t context;
    Termination termination;  // guarded by mutex_
    Promise<void> promise;
  };
  struct Part;  // one gradient message, or the roots of a pass, being run

  StatePtr state(uint64_t context);       // made if new; `cancelled` if the context has ended
  StatePtr find_state(uint64_t context);  // null if there is none
  net::GradLink record_send(uint64_t context, WorkerId to, const std::vector<Tensor*>& tensors,
                            const std::vector<uint32_t>& indices, std::shared_ptr<actors::ActorCell> cell,
                            const char* what);
  template <class Tree>
  net::GradLink send_tensors(uint64_t context, WorkerId to, Tree& values,
                             std::shared_ptr<actors::ActorCell> cell, const char* what);
  template <class Tree>
  void receive_tensors(uint64_t context, WorkerId from, const net::GradLink& link, Tree& values);

  void run_part(std::shared_ptr<Part> part);
  void run_outside(std::shared_ptr<Part> part, const Frame& at, actors::Where where);
  void finish_part(Part& part);
  void on_backward(const Ref<actors::Invocation>& call);
  void on_report(const Ref<actors::Invocation>& call);
  /// A message that was handled, and those that it led to: (id, worker).
  using Report = std::pair<uint64_t, std::vector<std::pair<uint64_t, WorkerId>>>;
  void note_report(uint64_t pass, const Report& report, const std::optional<Error>& error);
  void on_release(const Ref<actors::Invocation>& call);
  void update(uint64_t pass, const std::function<void(Termination&)>& change);
  GradMessageId next_message() { return (uint64_t{worker_.id()} << 40) | ++last_message_; }

  actors::Worker& worker_;
  LiveCount send_nodes_ = std::make_shared<std::atomic<int64_t>>(0);
  LiveCount receive_nodes_ = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<uint64_t> last_context_{0}, last_pair_{0}, last_message_{0}, last_pass_{0};
  std::shared_ptr<actors::Mailbox> outside_;  // runs the parts that were recorded outside actors
  actors::Pace outside_pace_;

  std::mutex mutex_;
  std::condition_variable outside_idle_;
  int64_t outside_jobs_ = 0;
  bool stopped_ = false;
  std::unordered_map<uint64_t, StatePtr> contexts_;
  std::array<uint64_t, 1024> ended_{};  // the last contexts that ended: late calls must not bring them back
  size_t next_ended_ = 0;
  std::map<uint64_t, std::shared_ptr<Pass>> passes_;
};

}  // namespace troupe::autograd
