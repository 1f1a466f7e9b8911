// One worker's part in distributed autograd: it records what crosses actors, runs gradients back, and forgets
// contexts. An interceptor of calls: the call layer knows nothing of gradients.
//
// A gradient message runs back, as a job in its actor's mailbox, the part of the graph that it enters:
// forward, backward and optimizer steps of an actor never race. A pass goes one of two ways:
//
// - Fast, where the parts have nothing in common (SharedSubgraphs; chains): every message is a pass of its
// own.
// - Exact, otherwise. First a wave of reach messages, without gradients, goes the way that the gradients will
//   go, and tells each part once that it will be entered. Then the gradients follow: a node runs when all
//   that can reach it have come. A part always passes gradients on, undefined ones too, so nothing waits in
//   vain.
//
// A pass for given inputs (grad) is exact, with a second wave between the two: it goes the other way, from
// the inputs, and marks what leads to them. Only that runs.
//
// A recorded pass (create_graph) needs nothing else: its parts run with grad mode on, so its messages leave
// send and receive nodes as those of calls do, in the same actors, and a later pass runs over both graphs.
//
// What a pass adds to gradients is kept apart until it has ended well. One that fails is dropped everywhere
// before its error is told, except where that could take long: when a worker is lost or the time is up.
#pragma once
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/cell/interceptor.h"
#include "actors/cluster/profiler.h"
#include "actors/worker/worker.h"
#include "autograd/distributed/context_state.h"
#include "autograd/distributed/ended_contexts.h"
#include "autograd/distributed/termination.h"

namespace troupe::autograd {

/// Thread-safe.
class DistEngine final : public internal::actors::Interceptor {
 public:
  /// Adds interceptor, services and metrics to the worker, which owns it.
  static DistEngine& install(internal::actors::Worker& worker);

  // ---- contexts that start here
  uint64_t new_context();
  /// Forgets the context here and at once, and tells the others. Ready when it is forgotten everywhere;
  /// without `wait`, when they have been told.
  Future<void> release(uint64_t context, bool wait);

  // ---- passes that start here, in any context
  /// Runs gradients back from `roots`. Ready when every gradient is in the context of the worker that owns
  /// its leaf.
  /// `only_inputs`: to no leaves, but to the inputs that the actors on the way have set.
  Future<void> backward(uint64_t context, const std::vector<Edge>& roots, const Tensors& grads,
                        const RunOptions& how, bool only_inputs);
  /// The gradients of `inputs`, which are in the part of the graph that the caller sees, as `roots` are.
  Future<Tensors> grad(uint64_t context, const std::vector<Edge>& roots, const Tensors& grads,
                       const std::vector<Edge>& inputs, const RunOptions& how);
  /// Names of the workers that unfinished passes of the context wait for, and gives these passes up with
  /// `why`.
  void abandon(uint64_t context, const Error& why);
  std::vector<std::string> waiting_for(uint64_t context);

  /// The workers that this one knows to take part: those that it called, or that called it, and on the
  /// originator also those that keep something of the context through others.
  std::vector<WorkerId> peers(uint64_t context);

  /// Throws `invalid` if the context, one of this worker, has ended.
  void check_live(uint64_t context);
  /// Gradient of a leaf of this worker; undefined if none arrived. `invalid` if the context has ended.
  Tensor gradient(uint64_t context, const Tensor& leaf);
  /// The inputs of the calling actor, or of what runs outside actors here: tensors that need gradients.
  void set_inputs(uint64_t context, Tensors inputs);
  Tensors inputs(uint64_t context);
  /// Puts another one in its place (undefined: none) and returns what was there. As gradient().
  Tensor exchange_gradient(uint64_t context, const Tensor& leaf, Tensor grad);

  // ---- internal::actors::Interceptor
  void outgoing_call(const internal::actors::CallerState& caller, internal::net::Call& call) override;
  void call_not_sent(internal::net::Call& call) override;
  void incoming_call(internal::actors::Invocation& invocation) override;
  void outgoing_reply(internal::actors::Invocation& invocation, internal::net::Reply& reply) override;
  void reply_not_sent(internal::actors::Invocation& invocation, internal::net::Reply& reply) override;
  void incoming_reply(const internal::actors::CallerState& caller, internal::net::Reply& reply) override;
  void worker_lost(WorkerId id, const Error& why) override;
  void interrupted(const Error& why) override {
    fail_passes([](const Pass&) { return true; }, why);
  }
  void stop() override;

  /// Of the messages of a pass.
  enum class Kind { gradient, reach, want, finish };
  /// A message that was handled, those that it led to (id, worker), and the pair by which to tell of the end
  /// of the pass, or 0.
  using Report = std::tuple<uint64_t, std::vector<std::pair<uint64_t, WorkerId>>, uint64_t>;

 private:
  explicit DistEngine(internal::actors::Worker& worker);
  using StatePtr = std::shared_ptr<ContextState>;
  struct BackwardTask;  // one message, or the roots of a pass, being handled
  struct Pass {         // on its originator
    uint64_t number, low_watermark, context;
    bool selects;
    std::vector<std::shared_ptr<BackwardTask>> parts;  // how it goes on, last first
    Termination termination;
    std::set<WorkerId> workers;                           // that messages went to
    std::vector<std::pair<WorkerId, uint64_t>> watching;  // to be told of the end, by which pair
    std::set<WorkerId> told;                              // of those, after a failure: to drop it
    size_t unanswered = 0;                                // of these
    bool hurry = false;                                   // its error is to be told at once
    bool answered = false;
    internal::actors::Profiler::Span total;
    Promise<void> promise;
  };

  // Made if new, because of a message of worker `from`, or of nobody known; `invalid` if the context has
  // ended.
  StatePtr state(uint64_t context, WorkerId from = kNoWorker);
  bool ended(uint64_t context);  // with mutex_
  // `disconnected` if it ended with its originator, else `kind`.
  [[noreturn]] void throw_ended(uint64_t context, ErrorKind kind) const;
  void check_number(uint64_t context);
  Future<void> forget(uint64_t context, uint64_t below, bool wait);
  uint64_t lowest_live();  // with mutex_: of the contexts of this worker
  void on_joined(WorkerId from, uint64_t context);
  StatePtr find_state(uint64_t context);  // null if there is none
  StatePtr live_state(uint64_t context);  // the same; `invalid` if it has ended or never was
  internal::net::GradLink record_send(uint64_t context, WorkerId to, WorkerId asked_by,
                                      const std::vector<Tensor*>& tensors,
                                      const std::vector<uint32_t>& indices, ContextState::Send send,
                                      const char* what);
  template <class Tree>
  internal::net::GradLink send_tensors(uint64_t context, WorkerId to, WorkerId asked_by, Tree& values,
                                       ContextState::Send send, const char* what);
  template <class Tree>
  void receive_tensors(uint64_t context, WorkerId from, const internal::net::GradLink& link, Tree& values);

  // ---- parts
  void on_message(Kind kind, internal::actors::Invocation& call, uint64_t pass, int64_t options,
                  uint64_t message, uint64_t low_watermark, uint64_t pair, ValueList values,
                  const std::optional<Report>& report);
  void post_task(std::shared_ptr<BackwardTask> part);
  void run_task(BackwardTask& part);
  void run_outside(std::shared_ptr<BackwardTask> part, internal::actors::DispatchTarget where);
  void finish_task(BackwardTask& part);
  void check_links(const BackwardTask& part, ContextState* state);

  // ---- passes that start here
  void note_report(uint64_t context, uint64_t pass, WorkerId from, const Report& report,
                   const std::optional<Error>& error);
  std::shared_ptr<Pass> new_pass(uint64_t context, bool selects);
  Future<void> start(const std::shared_ptr<Pass>& pass, const std::vector<Kind>& kinds, int64_t options,
                     const std::vector<Edge>& roots, const Tensors& grads);
  void update(uint64_t pass, const std::function<void(Pass&)>& change);
  void end_now(const ContextState& state, const Error& why);
  void tell_over(uint64_t context, uint64_t pass, const std::set<WorkerId>& workers, bool failed);
  void drop_everywhere(const Pass& pass, const std::set<WorkerId>& workers);
  void tell_broken(ContextState& state, WorkerId lost, const Error& why);
  void fail_passes(const std::function<bool(const Pass&)>& which, const Error& why);
  GradMessageId next_message() { return (uint64_t{worker_.id()} << 40) | ++last_message_; }

  internal::actors::Worker& worker_;
  LiveCount send_nodes_ = std::make_shared<std::atomic<int64_t>>(0);
  LiveCount receive_nodes_ = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<uint64_t> last_pair_{0}, last_message_{0}, last_pass_{0};
  std::atomic<int64_t> sent_[4] = {};                   // messages by kind
  internal::actors::Profiler* profiler_;                // null: there is none
  std::shared_ptr<internal::actors::Mailbox> outside_;  // runs the parts that were recorded outside actors
  internal::actors::DispatchHistory outside_history_;

  std::mutex mutex_;
  std::condition_variable outside_idle_;
  int64_t outside_jobs_ = 0;
  bool stopped_ = false;
  uint64_t last_context_ = 0;
  std::map<uint64_t, StatePtr> contexts_;
  std::unordered_map<WorkerId, EndedContexts>
      ended_;  // contexts of others: late calls must not bring them back
  std::map<uint64_t, std::shared_ptr<Pass>> passes_;
};

}  // namespace troupe::autograd
