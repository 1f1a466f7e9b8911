// Who hears of each operator that this process applies: profiles that were asked to note them. Nobody, most
// of the time, which costs an operator a look at a pointer.
#pragma once
#include <atomic>
#include <cstdint>

namespace troupe::internal {

/// Called on the thread that applies the operator; thread-safe, and do not throw.
struct OperatorHooks {
  uint64_t (*begins)(const char* name);  ///< a number for ends(); 0: it is not told of the end
  void (*ends)(uint64_t number);
};

inline constinit std::atomic<const OperatorHooks*> operator_hooks{nullptr};

/// An operator is at work while it is there.
class OperatorSpan {
 public:
  explicit OperatorSpan(const char* name) {
    if (const OperatorHooks* hooks = operator_hooks.load(std::memory_order_acquire)) [[unlikely]]
      begin(*hooks, name);
  }
  ~OperatorSpan() {
    if (number_) [[unlikely]]
      ends_(number_);
  }
  OperatorSpan(const OperatorSpan&) = delete;

 private:
  void begin(const OperatorHooks& hooks, const char* name) {
    ends_ = hooks.ends;
    number_ = hooks.begins(name);
  }
  uint64_t number_ = 0;
  void (*ends_)(uint64_t) = nullptr;
};

}  // namespace troupe::internal
