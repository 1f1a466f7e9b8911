// How a thread waits: it looks for what it waits for, as long as that is likely to come, then it sleeps.
#pragma once
#include <memory>

#include "core/clock.h"
#include "core/ready.h"

namespace troupe {

/// Brings messages by a thread of its own, or by one that waits: a connection.
class Arrivals {
 public:
  virtual ~Arrivals() = default;
  /// Delivers what comes until `done` or `end`; comes back earlier if somebody else does it. `looks`: for a
  /// while, and again after each message, before the thread sleeps. Any thread may call it.
  virtual void deliver_until(const Ready& done, TimePoint end, bool looks) = 0;
};

/// What the current thread waits for next is likely to come by `from`, which is not kept alive.
void expect_from(const std::shared_ptr<Arrivals>& from);

/// Waits; false at `end`. Outside actors and callbacks a thread whose last wait ended a moment ago looks
/// before it sleeps: waking a thread that sleeps on an idle core costs 10 to 50 us, more than a short call
/// takes. And it reads the connection on which the answer is expected, so that no other thread has to be
/// woken first.
bool wait_until(const Ready& ready, TimePoint end);

}  // namespace troupe
