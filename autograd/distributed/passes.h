// Backward passes that start on this worker: their phases, how they end, what fails them.
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
// A pass keeps the gradients that it adds apart until it has ended well. One that fails is dropped everywhere
// before its error is told, except where that could take long: when a worker is lost or the time is up.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "autograd/distributed/backward_task.h"
#include "autograd/distributed/contexts.h"
#include "autograd/distributed/task_runner.h"
#include "autograd/distributed/termination.h"
#include "autograd/split_pass.h"
#include "core/base/mutex.h"

namespace troupe::autograd {

/// Thread-safe.
class Passes {
 public:
  Passes(Outbox& outbox, Contexts& contexts, TaskRunner& runner);

  /// Runs gradients back from `roots`, in any context. Ready when every gradient is in the context of the
  /// worker that owns its leaf.
  /// `only_inputs`: to no leaves, but to the inputs that the actors on the way have set. `meeting`: as in
  /// BackwardOptions.
  Future<void> backward(uint64_t context, const std::vector<Edge>& roots, Tensors grads,
                        const RunOptions& how, bool only_inputs, uint64_t meeting);
  /// The gradients of `inputs`, which are in the part of the graph that the caller sees, as `roots` are.
  Future<Tensors> grad(uint64_t context, const std::vector<Edge>& roots, Tensors grads,
                       const std::vector<Edge>& inputs, const RunOptions& how);
  /// What a pass of this actor begins with, as SplitPass has it: the gradients of its inputs. `meeting`: as
  /// in backward().
  Future<Tensors> part(uint64_t context, internal::autograd::SplitPass::FirstPart part, uint64_t meeting);
  /// Gives up unfinished passes of the context.
  void abandon(uint64_t context, const Error& why);
  /// The workers that these wait for, and what those say that they wait for: asks them. Blocks, a second at
  /// most.
  std::string waiting_for(uint64_t context) TROUPE_EXCLUDES(mutex_);

  /// What a task of a pass led to, on worker `from`, or why it failed.
  void take_report(uint64_t context, uint64_t pass, WorkerId from, const Report& report,
                   const std::optional<Error>& error);
  /// Those of a context that is over: nobody has to be told.
  void end(const ContextState& state, const Error& why) TROUPE_EXCLUDES(mutex_);
  void worker_lost(WorkerId id, const Error& why);
  void fail_all(const Error& why);
  size_t size() const;

 private:
  struct Pass {
    uint64_t number, low_watermark, context;
    bool selects;
    std::vector<std::shared_ptr<BackwardTask>> phases;  // how it goes on, last first
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

  std::shared_ptr<Pass> make(uint64_t context, bool selects);
  Future<void> start(const std::shared_ptr<Pass>& pass, const std::vector<PassPhase>& phases, int64_t options,
                     const std::vector<Edge>& roots, Tensors grads, std::shared_ptr<ActorRegion> region = {})
      TROUPE_EXCLUDES(mutex_);
  std::vector<uint64_t> numbers() const TROUPE_EXCLUDES(mutex_);
  void update(uint64_t number, const std::function<void(Pass&)>& change) TROUPE_EXCLUDES(mutex_);
  void tell_over(uint64_t context, uint64_t pass, const std::set<WorkerId>& workers, bool failed);
  void drop_everywhere(const Pass& pass, const std::set<WorkerId>& workers);

  internal::actors::Worker& worker_;
  Outbox& outbox_;
  Contexts& contexts_;
  TaskRunner& runner_;
  std::atomic<uint64_t> last_pass_{0};
  mutable internal::Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Pass>> passes_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::autograd
