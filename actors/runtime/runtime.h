// Threads and mailboxes: where actors run. The only home of CAF.
//
// A Mailbox is a CAF actor: its jobs run one at a time, in the order in which they were posted. A job is run
// by the pool, or by the posting thread itself if the mailbox is idle (no thread is woken: 0.2 us instead of
// 10 to 25).
#pragma once
#include <memory>

#include "actors/runtime/dispatch_history.h"
#include "core/async/waiting.h"
#include "core/memory/ref.h"

namespace troupe::internal::actors {

/// Something to run in a mailbox. run() must not throw.
class Job : public RefCounted {
 public:
  virtual void run() = 0;
};

/// A Job from a callable.
template <class F>
Ref<Job> make_job(F f) {
  struct Fn final : Job {
    explicit Fn(F f) : f(std::move(f)) {}
    void run() override { f(); }
    F f;
  };
  return Ref<Job>(new Fn(std::move(f)));
}

class Mailbox {
 public:
  virtual ~Mailbox() = default;  ///< jobs already posted still run
  virtual void post(Ref<Job> job, DispatchTarget where) = 0;
};

/// The pool. Shared by the workers of one process that want to share it. Destroyed after its mailboxes.
class Runtime {
 public:
  virtual ~Runtime() = default;  ///< waits until every posted job has run
  /// threads 0: as many as cores.
  static std::shared_ptr<Runtime> make(int threads = 0);
  virtual std::unique_ptr<Mailbox> make_mailbox() = 0;
  virtual int threads() const { return 1; }
  /// For a thread that serves (core/async/waiting.h): as long as they are there it runs a mailbox itself that
  /// it would have handed to the pool, one at a time. To be made and destroyed by that thread. Null: there
  /// are none.
  virtual std::unique_ptr<LocalRunQueue> make_run_queue() { return nullptr; }
};

}  // namespace troupe::internal::actors
