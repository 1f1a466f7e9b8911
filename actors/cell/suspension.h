// A coroutine between two messages: it goes on in its actor's mailbox, or is told to give up.
#pragma once
#include <atomic>
#include <coroutine>
#include <memory>
#include <optional>

#include "core/base/call_frame.h"
#include "core/base/error.h"
#include "core/graph/autocast.h"

namespace troupe::internal::actors {

class ActorCell;

/// Keeps frame and modes. Thread-safe; the first of resume() and cancel() wins.
class Suspension : public std::enable_shared_from_this<Suspension> {
 public:
  /// Of the coroutine that is about to be suspended on this thread.
  explicit Suspension(std::coroutine_handle<> coroutine);
  /// Lets the call that it belongs to end it, and the actor's worker when that stops.
  void announce();
  void resume();
  /// The coroutine goes on with this error.
  void cancel(const Error& why);
  /// Throws the error of cancel(). For the coroutine, after it went on.
  void check() const;
  /// Do not go on, even if there is nothing to wait for: the call being handled on this thread was cancelled,
  /// or its actor gives way (ActorCell::give_way).
  static bool stops_here();

 private:
  void go_on();
  std::coroutine_handle<> coroutine_;
  CallFrame frame_;
  ThreadModes modes_;
  std::shared_ptr<ActorCell> cell_;
  std::atomic<bool> ended_{false};
  std::optional<Error> cancelled_;
};

}  // namespace troupe::internal::actors
