// The result of a call goes to the worker that uses it, instead of to the caller: the callee's half.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/value/value.h"

namespace troupe::internal::actors {

/// Where the result goes: into a call of the same caller that waits there for it.
struct HandOver {
  WorkerId to = kNoWorker;
  uint64_t number = 0;  ///< of that call among the caller's late ones (actors/calls/late_arguments.h)
  uint32_t index = 0;   ///< of the argument
  uint64_t context = 0;
  bool grad_enabled = true;
};

/// The question where the result of a running call goes. It is answered once, and before the call has ended;
/// afterwards the answer is on its way to the caller already. Thread-safe, without a lock.
class HandOverSlot {
 public:
  HandOverSlot() = default;
  HandOverSlot(const HandOverSlot&) = delete;
  ~HandOverSlot() { drop(state_.load()); }

  /// False: the call has ended, or somebody has asked before.
  bool ask(const HandOver& how) {
    auto* asked = new HandOver(how);
    HandOver* none = nullptr;
    if (state_.compare_exchange_strong(none, asked)) return true;
    delete asked;
    return false;
  }
  /// The call has ended, once: what was asked until now, or null.
  std::unique_ptr<const HandOver> end() {
    HandOver* asked = state_.exchange(ended());
    return std::unique_ptr<const HandOver>(asked == ended() ? nullptr : asked);
  }

 private:
  // Marks that the call has ended; nothing points to it.
  static HandOver* ended() {
    static HandOver mark;
    return &mark;
  }
  static void drop(HandOver* asked) {
    if (asked != ended()) delete asked;
  }
  std::atomic<HandOver*> state_{nullptr};
};

}  // namespace troupe::internal::actors
