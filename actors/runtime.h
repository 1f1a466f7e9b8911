// Threads and mailboxes: where actors run. The only home of CAF.
//
// A Mailbox is a CAF actor: its jobs run one at a time, in the order in which they were posted. A job is run
// by the pool, or by the posting thread itself if the mailbox is idle (no thread is woken: 0.2 us instead of
// 10 to 25).
#pragma once
#include <atomic>
#include <memory>

#include "core/clock.h"
#include "core/ref.h"

namespace troupe::actors {

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

enum class Where {
  pool,    ///< a thread of the runtime's pool
  caller,  ///< this thread, at once if it runs no job now, else when the job that it runs has ended; the pool
           ///< if the mailbox is busy elsewhere
};

/// Decides where work of one kind runs, from how long it took so far: short work on the thread that brought
/// it, since handing over would cost 10 to 25 us; longer work in the pool, since it would hold up the
/// connection.
class Pace {
 public:
  Where where() const {
    const int64_t mean = mean_ns_.load(std::memory_order_relaxed);
    return mean >= 0 && mean <= kShortNs ? Where::caller : Where::pool;
  }
  /// Called by one thread at a time.
  void note(Duration took) {
    const int64_t before = mean_ns_.load(std::memory_order_relaxed);
    mean_ns_.store(before < 0 ? took.count() : before + (took.count() - before) / 8,
                   std::memory_order_relaxed);
  }

 private:
  static constexpr int64_t kShortNs = 20'000;
  std::atomic<int64_t> mean_ns_{-1};  // -1: never ran
};

class Mailbox {
 public:
  virtual ~Mailbox() = default;  ///< jobs already posted still run
  virtual void post(Ref<Job> job, Where where) = 0;
};

/// The pool. Shared by the workers of one process that want to share it. Destroyed after its mailboxes.
class Runtime {
 public:
  virtual ~Runtime() = default;  ///< waits until every posted job has run
  /// threads 0: as many as cores.
  static std::shared_ptr<Runtime> make(int threads = 0);
  virtual std::unique_ptr<Mailbox> make_mailbox() = 0;
  virtual int threads() const { return 1; }
};

}  // namespace troupe::actors
