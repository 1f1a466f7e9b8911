// The call that the current thread is handling.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/clock.h"

namespace troupe {

class SeedStream;

/// What an object of a layer above is to the thread whose frame points to it.
enum class FrameRole : uint8_t { worker, actor, call, scope, packed_weights };

/// The type of that object. The layer of the type says it, once:
/// `template <> struct FrameSlotType<FrameRole::scope> : std::type_identity<CallScope> {};`
template <FrameRole role>
struct FrameSlotType;

/// A frame's pointer to such an object. Who has the FrameSlotType uses it as a pointer of that type. Layers
/// below see whether it is null, and whether it points to the same object as another one.
template <FrameRole role>
class FrameSlot {
 public:
  constexpr FrameSlot() = default;
  constexpr FrameSlot(std::nullptr_t) {}
  template <class T>
  FrameSlot(T* object) {
    typename FrameSlotType<role>::type* const typed = object;
    object_ = typed;
  }
  explicit operator bool() const { return object_; }
  bool operator==(const void* address) const { return object_ == address; }
  const void* address() const { return object_; }

  template <FrameRole r = role>
  auto* get() const {
    return static_cast<typename FrameSlotType<r>::type*>(object_);
  }
  template <FrameRole r = role>
  auto& operator*() const {
    return *get<r>();
  }
  template <FrameRole r = role>
  auto* operator->() const {
    return get<r>();
  }

 private:
  void* object_ = nullptr;
};

struct CallFrame {
  FrameSlot<FrameRole::worker> worker;  ///< on whose behalf the thread runs
  FrameSlot<FrameRole::actor> actor;    ///< whose message is being handled; null outside actors
  const std::string* what =
      nullptr;           ///< "Layer::forward on w1 (Layer#0:3)", while actor is set; outlives the frame
  uint64_t context = 0;  ///< distributed autograd context; 0: none
  TimePoint deadline = TimePoint::max();  ///< of the call being handled; nested calls inherit it
  FrameSlot<FrameRole::call> call;        ///< being handled, while its method or coroutine runs
  SeedStream* seed_stream = nullptr;      ///< of random numbers: the actor's; null: the program's
  uint64_t* nodes = nullptr;  ///< how many nodes of graphs were made: by the actor; null: on the thread
  FrameSlot<FrameRole::scope> scope;      ///< gathers the calls made here
  FrameSlot<FrameRole::packed_weights> packed_weights;  ///< in use
  bool callback = false;      ///< on a thread that others wait for: a callback, a service
  uint8_t device_stream = 0;  ///< of devices, that the thread's work goes to: the actor's (StreamId)

  /// What a callback keeps that may run when the call is over.
  CallFrame for_later() const {
    CallFrame f = *this;
    f.call = nullptr;
    f.scope = nullptr;
    f.nodes = nullptr;
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
