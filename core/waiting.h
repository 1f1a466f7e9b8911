// What a thread does before it sleeps in a wait: it looks for what it waits for, as long as that is likely to
// come.
#pragma once
#include <atomic>
#include <memory>

#include "core/clock.h"

namespace troupe {

/// Brings messages by a thread of its own, or by one that waits: a connection.
class Arrivals {
 public:
  virtual ~Arrivals() = default;
  /// Delivers what comes until `done`, until `end`, or until nothing has come for a while. Any thread may
  /// call it.
  virtual void deliver_until(const std::atomic<bool>& done, TimePoint end) = 0;
};

/// What the current thread waits for next is likely to come by `from`, which is not kept alive.
void expect_from(const std::shared_ptr<Arrivals>& from);

/// A thread that waits for `ready`, outside actors and callbacks. Waking a thread that sleeps on an idle core
/// costs 10 to 50 us, more than a short call takes. So a thread whose last wait ended a moment ago looks
/// before it sleeps, or delivers messages itself meanwhile; one that waits now and then sleeps at once.
class Waiting {
 public:
  explicit Waiting(const std::atomic<bool>& ready, TimePoint end = TimePoint::max());
  ~Waiting();
  Waiting(const Waiting&) = delete;
};

}  // namespace troupe
