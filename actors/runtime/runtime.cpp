#include "actors/runtime/runtime.h"

#include <algorithm>
#include <caf/all.hpp>
#include <deque>

#include "core/async/no_reentry.h"
#include "core/base/compiler.h"
#include "core/base/thread.h"
#if TROUPE_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace troupe::internal::actors {
namespace {

// CAF is not instrumented: ThreadSanitizer has to be told what CAF orders. All that was done before
// happens_before(x) is visible after happens_after(x).
#if TROUPE_TSAN
void happens_before(void* x) { __tsan_release(x); }
void happens_after(void* x) { __tsan_acquire(x); }
#else
void happens_before(void*) {}
void happens_after(void*) {}
#endif

struct Ordered {  // before the end of a scope
  explicit Ordered(void* x) : x(x) {}
  ~Ordered() { happens_before(x); }
  void* x;
};

struct JobMessage {
  Ref<Job> job;
};

}  // namespace
}  // namespace troupe::internal::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::internal::actors::JobMessage)

namespace troupe::internal::actors {
namespace {

class InlineUnit;
class ThreadRunQueue;

// What runs mailboxes on a thread; null: the pool does.
struct UnitsOfThread {
  InlineUnit* unit = nullptr;
  ThreadRunQueue* queue = nullptr;
};
constinit thread_local UnitsOfThread units;

// Runs mailboxes on the thread that posted to them. While one is active on a thread, further posts line up
// behind.
class InlineUnit final : public caf::execution_unit {
 public:
  explicit InlineUnit(caf::actor_system& system) : caf::execution_unit(&system), before_(units.unit) {
    units.unit = this;
  }
  ~InlineUnit() { units.unit = before_; }

  static InlineUnit* active_for(caf::actor_system& system) {
    InlineUnit* unit = units.unit;
    return unit && unit->system_ == &system ? unit : nullptr;
  }

  void exec_later(caf::resumable* r) override { ready_.push_back(r); }

  void drain() {
    while (!ready_.empty()) {
      caf::resumable* r = ready_.front();
      ready_.pop_front();
      switch (r->resume(this, kJobsPerTurn)) {
        case caf::resumable::resume_later:
          system_->scheduler().enqueue(r);
          break;
        case caf::resumable::shutdown_execution_unit:
          break;
        case caf::resumable::done:
        case caf::resumable::awaiting_message:
          caf::intrusive_ptr_release(r);
          break;
      }
    }
  }

 private:
  static constexpr size_t kJobsPerTurn = 64;  // a busy mailbox then goes on in the pool
  InlineUnit* before_;
  const NoReentry undisturbed_;  // what a wait delivered would line up behind the job that waits
  std::deque<caf::resumable*> ready_;
};

// Keeps one mailbox that its thread has posted to the pool, for that thread to run.
class ThreadRunQueue final : public caf::execution_unit, public LocalRunQueue {
 public:
  explicit ThreadRunQueue(caf::actor_system& system) : caf::execution_unit(&system) { units.queue = this; }
  ~ThreadRunQueue() {
    units.queue = nullptr;
    if (mailbox_) system_->scheduler().enqueue(mailbox_);
  }
  static ThreadRunQueue* of_thread_for(caf::actor_system& system) {
    ThreadRunQueue* mine = units.queue;
    return mine && mine->system_ == &system ? mine : nullptr;
  }
  bool empty() const override { return !mailbox_; }
  void run() override {
    InlineUnit unit(*system_);
    unit.exec_later(std::exchange(mailbox_, nullptr));
    units.queue = nullptr;  // what it posts need not wait for it
    unit.drain();
    units.queue = this;
  }
  void exec_later(caf::resumable* r) override {
    if (mailbox_)
      system_->scheduler().enqueue(r);
    else
      mailbox_ = r;
  }

 private:
  caf::resumable* mailbox_ = nullptr;
};

class CafRuntime final : public Runtime {
 public:
  explicit CafRuntime(int threads) : threads_(threads), config_(threads), system_(config_) {}

  std::unique_ptr<Mailbox> make_mailbox() override;
  std::unique_ptr<LocalRunQueue> make_run_queue() override {
    return std::make_unique<ThreadRunQueue>(system_);
  }
  caf::actor_system& system() { return system_; }
  int threads() const override { return threads_; }

 private:
  struct Config : caf::actor_system_config {
    explicit Config(int threads) {
      set("scheduler.policy",
          caf::atom("sharing"));  // stealing wakes threads later: 147 us p99 instead of 23
      set("scheduler.max-threads", static_cast<size_t>(threads));
      set("logger.verbosity", caf::atom("quiet"));
    }
  };
  const int threads_;
  Config config_;
  caf::actor_system system_;
};

class CafMailbox final : public Mailbox {
 public:
  explicit CafMailbox(caf::actor_system& system) : system_(system) {
    // Lazy: otherwise its first turn, and what is posted before it, would be the pool's.
    actor_ = system.spawn<caf::lazy_init>([&system](caf::event_based_actor* self) -> caf::behavior {
      caf::abstract_actor* turn = self;  // stands for the order of what is posted and of what runs
      happens_after(turn);
      const Ordered made(&made_);
      return {[&system, turn](JobMessage& message) {
        happens_after(&made_);
        const auto run = [&] {
          happens_after(turn);
          message.job->run();
          happens_before(turn);
        };
        if (InlineUnit::active_for(system)) return run();
        InlineUnit unit(system);  // on a pool thread: what the job posts runs after it, here
        run();
        unit.drain();
      }};
    });
  }

  ~CafMailbox() override { happens_after(caf::actor_cast<caf::abstract_actor*>(actor_)); }

  void post(Ref<Job> job, DispatchTarget where) override {
    auto element = caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, JobMessage{std::move(job)});
    auto* target = caf::actor_cast<caf::abstract_actor*>(actor_);
    happens_before(target);
    if (where == DispatchTarget::pool)
      return target->enqueue(std::move(element), ThreadRunQueue::of_thread_for(system_));
    if (auto* unit = InlineUnit::active_for(system_)) return target->enqueue(std::move(element), unit);
    InlineUnit unit(system_);
    target->enqueue(std::move(element), &unit);
    unit.drain();
  }

 private:
  inline static char made_ = 0;  // stands for the order of making a handler and using it
  caf::actor_system& system_;
  caf::actor actor_;
};

std::unique_ptr<Mailbox> CafRuntime::make_mailbox() { return std::make_unique<CafMailbox>(system_); }

}  // namespace

std::shared_ptr<Runtime> Runtime::make(int threads) {
  if (threads <= 0) threads = std::max(2, usable_cores());
  // CAF ends the program if one of its threads cannot start: its pool, a clock, and actors with threads of
  // their own.
  rehearse_threads("runtime", threads + 4);
  return std::make_shared<CafRuntime>(threads);
}

}  // namespace troupe::internal::actors
