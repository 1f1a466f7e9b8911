// A child of fork() has its parent's memory and connections and none of its threads: it is told so.
#pragma once
#include <atomic>
#include <mutex>

namespace troupe {

namespace detail {
inline constinit std::atomic<bool> forked_child{false};
[[noreturn]] void refuse_in_child(const char* what);
}  // namespace detail

/// While one is alive, children that fork() makes are refused: what they did would be taken for their
/// parent's. (A child that calls exec is a program of its own, and one that is made before is free.)
class RefuseChildren {
 public:
  RefuseChildren();  ///< throws in a child that is refused itself
  ~RefuseChildren();
  RefuseChildren(const RefuseChildren&) = delete;
};

/// True for good in a child that is refused.
inline bool in_refused_child() { return detail::forked_child.load(std::memory_order_relaxed); }

/// Throws `invalid` there, before anything has been touched. `what` starts the text: "spawn".
inline void check_process(const char* what) {
  if (in_refused_child()) [[unlikely]]
    detail::refuse_in_child(what);
}

/// For destructors of what has threads and connections, which cannot throw and must not end those of the
/// parent: there, writes why to stderr and ends the process with exit code 1.
void end_refused_child(const char* what);

namespace internal {

/// Of a child that is refused, for core/base/mutex.h: takes a mutex that a thread of its own holds, or
/// nobody. One that was held by a thread of the parent when that forked stays so for good: then it ends the
/// process as end_refused_child().
void lock_in_child(std::mutex& mutex);
void lock_in_child(std::recursive_mutex& mutex);
/// For tests: asked before each mutex that such a child takes, whether to take it as one that stays held.
using TakenAsHeld = bool (*)();
inline constinit TakenAsHeld taken_as_held = nullptr;

}  // namespace internal
}  // namespace troupe
