// The result of a call goes to the worker that uses it, instead of to the caller: the callee's half.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "core/value/value.h"

namespace troupe::internal::actors {

/// Where the result goes: into a call of the same caller that waits there for it.
struct HandOver {
  WorkerId to = kNoWorker;
  uint64_t number = 0;  ///< of that call among the caller's late ones (actors/calls/late_arguments.h)
  uint32_t index = 0;   ///< of the argument
  uint64_t context = 0;
  bool grad_enabled = true;
  bool keep = false;  ///< the result stays as well, and the caller is answered with a reference to it
};

/// The question where the result of a running call goes. It is answered once, and before the call has ended;
/// afterwards the answer is on its way to the caller already. Thread-safe, without a lock.
class HandOverSlot {
 public:
  HandOverSlot() = default;
  HandOverSlot(const HandOverSlot&) = delete;
  ~HandOverSlot() { delete asked_.load(); }

  /// False: somebody has asked before.
  bool ask(const HandOver& how) {
    auto asked = std::make_unique<const HandOver>(how);
    const HandOver* none = nullptr;
    if (!asked_.compare_exchange_strong(none, asked.get())) return false;
    (void)asked.release();
    return true;
  }
  /// The call has ended, once: what was asked until now, or null.
  std::unique_ptr<const HandOver> end() {
    return std::unique_ptr<const HandOver>(asked_.load() ? asked_.exchange(nullptr) : nullptr);
  }

 private:
  std::atomic<const HandOver*> asked_{nullptr};
};

}  // namespace troupe::internal::actors
