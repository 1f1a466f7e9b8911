// How much may be on its way to workers and actors, and what becomes of what is too much.
#pragma once
#include <cstddef>

namespace troupe {

/// A call for which there is no room waits or fails.
enum class OnFull {
  wait,  ///< it leaves when there is: the caller's thread blocks until then; in an actor or a callback, where
         ///< nobody may block, the call is kept, behind those that were made before it
  fail,  ///< it ends at once with `overloaded`
};

/// Of the calls of one worker that have not begun where they go. Above them there is at most one more
/// message.
struct FlowLimits {
  size_t bytes = size_t{256} << 20;  ///< of calls to one worker
  size_t messages = 100'000;         ///< to one actor
};

}  // namespace troupe
