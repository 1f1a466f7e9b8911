// Where the tasks of passes run on a worker, and what becomes of them.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>

#include "actors/runtime/dispatch_history.h"
#include "autograd/distributed/backward_task.h"
#include "autograd/distributed/contexts.h"
#include "core/base/mutex.h"

namespace troupe::autograd {

/// Runs the tasks of all passes, wherever these have started, as jobs in the mailboxes of the actors whose
/// parts of the graph they enter, and says what they led to. Thread-safe.
class TaskRunner {
 public:
  /// Takes the report of a task on worker `from` whose pass has started on this one.
  using TakeReport = std::function<void(uint64_t context, uint64_t pass, WorkerId from, const Report&,
                                        const std::optional<Error>&)>;
  TaskRunner(Outbox& outbox, Contexts& contexts, TakeReport take_report);

  /// To the mailbox where it belongs.
  void post(std::shared_ptr<BackwardTask> task);
  /// The first one of a pass, at once if that is possible: the caller is in its mailbox, or outside actors.
  void start(std::shared_ptr<BackwardTask> task);
  /// Only the two ends of a link know that it broke, and that messages on it may be lost: the originator may
  /// have a good link to both. It hears of this after it has heard of the messages.
  void tell_broken(ContextState& state, WorkerId lost, const Error& why);
  /// Returns when no job outside actors needs this object any more, and nothing is waited for: the contexts
  /// have ended.
  void wait_until_idle();

 private:
  void on_message(PassPhase phase, internal::actors::Invocation& call, uint64_t pass, int64_t options,
                  uint64_t message, uint64_t low_watermark, uint64_t pair, ValueList values,
                  const std::optional<Report>& report);
  void run_outside(std::shared_ptr<BackwardTask> task, internal::actors::DispatchTarget where)
      TROUPE_EXCLUDES(mutex_);
  void run(BackwardTask& task);
  void wait_for(std::shared_ptr<BackwardTask> next, BackwardTask::Waiting w) TROUPE_EXCLUDES(mutex_);
  void end_job() TROUPE_EXCLUDES(mutex_);
  void finish(BackwardTask& task);
  void check_links(const BackwardTask& task, ContextState* state);

  internal::actors::Worker& worker_;
  Outbox& outbox_;
  Contexts& contexts_;
  const TakeReport take_report_;
  std::shared_ptr<internal::actors::Mailbox> outside_;  // of tasks that were recorded outside actors
  internal::actors::DispatchHistory outside_history_;
  uint64_t outside_nodes_ = uint64_t{1} << 40;  // CallFrame::nodes of outside_: above those of the program

  internal::Mutex mutex_;
  std::condition_variable idle_;
  int64_t jobs_ TROUPE_GUARDED_BY(mutex_) = 0;  // outside actors; and those that wait to be posted
};

}  // namespace troupe::autograd
