// How a thread waits: it polls for what it waits for, as long as that is likely to come, then it sleeps.
#pragma once
#include <memory>

#include "core/async/ready.h"
#include "core/base/clock.h"

namespace troupe {

/// What a thread that serves was brought to do, and what would hold up the connection that brought it.
class LocalRunQueue {
 public:
  virtual ~LocalRunQueue() = default;
  virtual bool empty() const = 0;
  virtual void run() = 0;
};

/// While one is alive, its thread has nothing to do but to wait: where it waits for long, as workers do for
/// their end, it does `run_queue` in between. Null: none.
class ServeScope {
 public:
  explicit ServeScope(LocalRunQueue* run_queue);
  ~ServeScope();
  ServeScope(const ServeScope&) = delete;
};

/// Brings messages by a thread of its own, or by one that waits: a connection.
class PollSource {
 public:
  virtual ~PollSource() = default;
  /// Delivers what comes until `done` or `end`; comes back earlier if somebody else does it. `polls`: for a
  /// while, and again after each message, before the thread sleeps. `run_queue`: done in between, while
  /// somebody else reads; may be null. Any thread may call it.
  virtual void deliver_until(const Ready& done, TimePoint end, bool polls, LocalRunQueue* run_queue) = 0;
};

/// What the current thread waits for next is likely to come by `from`, which is not kept alive.
void expect_from(const std::shared_ptr<PollSource>& from);

/// A simulation: its time passes, and things happen, only while a thread waits for one of them.
class WaitedWorld {
 public:
  virtual ~WaitedWorld() = default;
  /// Until `done`; false at `end` of its clock(). Throws if neither will come.
  virtual bool run_until(const Ready& done, TimePoint end) = 0;
  virtual const Clock& clock() const = 0;
};

/// While one is alive, its thread waits by that world; where there are several, by the youngest.
class WorldScope {
 public:
  explicit WorldScope(WaitedWorld& world);
  ~WorldScope();
  WorldScope(const WorldScope&) = delete;

 private:
  WaitedWorld& world_;
};

/// The clock by which the current thread waits.
const Clock& clock_of_waits();

/// Waits; false at `end`. Outside actors and callbacks a thread whose last wait ended a moment ago polls
/// before it sleeps: waking a thread that sleeps on an idle core costs 10 to 50 us, more than a short call
/// takes. And it reads the connection on which the answer is expected, so that no other thread has to be
/// woken first.
bool wait_until(const Ready& ready, TimePoint end);

}  // namespace troupe
