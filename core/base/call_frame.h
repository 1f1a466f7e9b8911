// The call that the current thread is handling: one of the two thread-locals (the other is the grad mode).
#pragma once
#include <cstdint>
#include <string>

#include "core/base/clock.h"

namespace troupe {

// Types of layers above, whose objects the frame points to. Nothing here looks inside.
class SeedStream;
class CallScope;
namespace internal::actors {
class Worker;
class ActorCell;
class Invocation;
}  // namespace internal::actors
namespace ops {
class PackedWeights;
}

struct CallFrame {
  internal::actors::Worker* worker = nullptr;    ///< on whose behalf the thread runs
  internal::actors::ActorCell* actor = nullptr;  ///< whose message is being handled; null outside actors
  const std::string* what =
      nullptr;           ///< "Layer::forward on w1 (Layer#0:3)", while actor is set; outlives the frame
  uint64_t context = 0;  ///< distributed autograd context; 0: none
  TimePoint deadline = TimePoint::max();         ///< of the call being handled; nested calls inherit it
  internal::actors::Invocation* call = nullptr;  ///< being handled, while its method or coroutine runs
  SeedStream* seed_stream = nullptr;             ///< of random numbers: the actor's; null: the program's
  CallScope* scope = nullptr;                    ///< gathers the calls made here
  ops::PackedWeights* packed_weights = nullptr;  ///< in use
  bool callback = false;                         ///< on a thread that others wait for: a callback, a service
  uint8_t device_stream = 0;  ///< of devices, that the thread's work goes to: the actor's (StreamId)

  /// What a callback keeps that may run when the call is over.
  CallFrame for_later() const {
    CallFrame f = *this;
    f.call = nullptr;
    f.scope = nullptr;
    f.packed_weights = nullptr;
    f.callback = true;
    return f;
  }
};

/// The current thread's frame.
CallFrame& frame();

/// Sets the thread's frame for a scope.
class CallFrameScope {
 public:
  explicit CallFrameScope(const CallFrame& f) : before_(frame()) { frame() = f; }
  ~CallFrameScope() { frame() = before_; }
  CallFrameScope(const CallFrameScope&) = delete;
  CallFrameScope& operator=(const CallFrameScope&) = delete;

 private:
  CallFrame before_;
};

/// Throws `invalid` if the thread is handling an actor's message: blocking there would stall the actor (and
/// could deadlock); `co_await` does not.
void check_may_block(const char* what);

}  // namespace troupe
