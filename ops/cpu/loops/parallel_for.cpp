// The threads behind parallel_for. Not OpenMP's: those belong to the thread that calls, and here any actor's
// thread may; and they go on looking for work while others need the core.
#include "ops/cpu/loops/parallel_for.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "core/base/fork.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/thread.h"
#include "ops/cpu/loops/level.h"
#include "ops/dispatch/threads.h"

// Of GNU's OpenMP runtime, which Debian's oneDNN is linked with. Its header belongs to g++, and clang's would
// bring a second runtime.
extern "C" void omp_set_num_threads(int);

namespace troupe::ops::on_cpu {
namespace {

struct LoopThread {
  bool busy = false;          // inside a piece
  bool holds_onednn = false;  // keep_onednn_on_this_thread() was called
};
constinit thread_local LoopThread loop_thread;

struct Job {
  void (*f)(const void*, int64_t);
  const void* context;
  int64_t pieces;
  bool back = turn_around();
  std::atomic<int64_t> next{0};
  troupe::internal::Mutex mutex;
  std::exception_ptr error;

  void work() {
    loop_thread.busy = true;
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < pieces;) try {
        f(context, back ? pieces - 1 - i : i);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next.store(pieces, std::memory_order_relaxed);
      }
    loop_thread.busy = false;
  }
};

// Waits until `x` is no longer `old`: looks for 50 us, giving way to others, then sleeps.
template <class T>
void wait_for_change(const std::atomic<T>& x, T old) {
  using Clock = std::chrono::steady_clock;
  for (const auto end = Clock::now() + std::chrono::microseconds(50); Clock::now() < end;) {
    if (x.load(std::memory_order_acquire) != old) return;
    std::this_thread::yield();
  }
  x.wait(old, std::memory_order_acquire);
}

// One job at a time. Helpers that come too late to join find nothing to do: nobody waits for them.
class Pool {
 public:
  /// False, and nothing done, if another job is running.
  bool run(Job& job, int helpers) {
    std::unique_lock only(in_use_, std::try_to_lock);
    if (!only) return false;
    start(helpers);
    {
      std::lock_guard lock(mutex_);
      job_ = &job;
      wanted_ = helpers;
    }
    calls_.fetch_add(1, std::memory_order_release);
    calls_.notify_all();
    job.work();
    {
      std::lock_guard lock(mutex_);
      job_ = nullptr;
    }
    for (int n; (n = active_.load(std::memory_order_acquire)) != 0;) wait_for_change(active_, n);
    return true;
  }

 private:
  void start(int helpers) {
    sigset_t all, before;
    sigfillset(&all);  // signals are for the program's own threads
    pthread_sigmask(SIG_SETMASK, &all, &before);
    helpers = std::min(helpers, most_);
    try {
      for (; started_ < helpers; ++started_) start_thread("ops", [this] { help(); }).detach();
    } catch (const Error& e) {  // slower, and the same numbers
      most_ = started_;
      internal::log::warning(e.message() + ". Operators go on with " + std::to_string(started_ + 1) +
                             " threads");
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void help() {
    for (uint32_t seen = 0;;) {
      wait_for_change(calls_, seen);
      seen = calls_.load(std::memory_order_acquire);
      Job* job = nullptr;
      {
        std::lock_guard lock(mutex_);
        if (job_ && wanted_ > 0) {
          job = job_;
          --wanted_;
          active_.fetch_add(1, std::memory_order_relaxed);
        }
      }
      if (!job) continue;
      job->work();
      active_.fetch_sub(1, std::memory_order_acq_rel);
      active_.notify_all();
    }
  }

  troupe::internal::Mutex in_use_, mutex_;
  int started_ = 0;     // under in_use_, as is most_
  int most_ = 1 << 20;  // what the system allows
  Job* job_ = nullptr;  // under mutex_, as is wanted_
  int wanted_ = 0;
  std::atomic<int> active_{0};
  std::atomic<uint32_t> calls_{0};
};

// Never destroyed: its threads outlive main.
Pool& pool() {
  static auto* instance = new Pool;
  return *instance;
}

}  // namespace

// A child that fork() made has none of the threads, and perhaps a lock that one of them had.
bool may_fork() { return !loop_thread.busy && num_threads() > 1 && !in_refused_child(); }

void run_pieces(int64_t pieces, void (*f)(const void*, int64_t), const void* context) {
  Job job{f, context, pieces};
  const auto helpers = static_cast<int>(std::min<int64_t>(num_threads(), pieces)) - 1;
  if (!pool().run(job, helpers)) job.work();
  if (job.error) std::rethrow_exception(job.error);
}

// OpenMP keeps the number per calling thread.
void keep_onednn_on_this_thread() {
  if (std::exchange(loop_thread.holds_onednn, true)) return;
  (void)level();
  omp_set_num_threads(1);
}

}  // namespace troupe::ops::on_cpu
