// A caller whose deadline is near asks what the callee is doing.
#pragma once
#include <string>

#include "actors/cell/invocation.h"
#include "core/base/clock.h"

namespace troupe::internal::actors {

class Worker;

/// The state of a call at its callee.
struct CallActivity {
  enum State : uint8_t {
    unmade,      ///< its actor, or the value that it asks for, is still being made
    incomplete,  ///< arguments are missing that come from other workers
    queued,      ///< it has not begun
    at_work,     ///< its method runs
    waiting,     ///< its method is a coroutine, and waits
  };
  State state = unmade;
  std::string actor = {};  ///< "Half#0:1 on w1"; empty: unmade
  Duration time{};  ///< at_work: since it went on; waiting: since it began; queued: since its actor does that
  std::string what;  ///< queued: what its actor is at work on; waiting, incomplete: for what. Empty: unknown
};

/// Thread-safe.
class CallStatus {
 public:
  explicit CallStatus(Worker& worker) : worker_(worker) {}
  /// Once, in the worker's set-up: answers the questions of callers.
  void serve();
  /// The state of a call to an actor of this worker.
  CallActivity activity_of(const Invocation& call) const;
  /// Its state as a sentence.
  std::string text_of(const Invocation& call) const;
  /// The callee of pending call `id` is asked; what it says is noted with the call.
  void ask(uint64_t id, WorkerId to);

 private:
  void tell(const Ref<Invocation>& question, uint64_t id);

  Worker& worker_;
};

}  // namespace troupe::internal::actors
