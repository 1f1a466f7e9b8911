// What can be told that nobody wants it any more.
#pragma once
#include "actors/runtime/runtime.h"

namespace troupe::internal::actors {

/// A call at its callee.
class Cancellable : public Job {
 public:
  /// Nobody wants the result. A call that has not started does not; a coroutine ends where it waits, or where
  /// it waits next: its frame is destroyed, and the calls that it waits for are cancelled in turn; a plain
  /// method runs to its end. Thread-safe; does nothing the second time, or after the end.
  virtual void cancel() = 0;
};

}  // namespace troupe::internal::actors
