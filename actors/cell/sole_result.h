// Large results that nobody has but the caller.
#pragma once
#include <atomic>
#include <cstddef>

namespace troupe::internal::actors {

/// Of one method of a type: how large the results are that nobody else holds when they are sent. To a caller
/// in another process of the host such a result travels without a copy if it was made in memory that both
/// share (core/memory/placed_storage.h); which of a method's tensors will be its result is guessed by the
/// size of the last one, and given up for good when that was wrong. Thread-safe.
class SoleResult {
 public:
  static constexpr size_t kLeast = size_t{256} << 10;  ///< bytes; less is copied soon enough

  /// Of the storage to be placed; 0: none.
  size_t expected() const {
    const size_t bytes = bytes_.load(std::memory_order_relaxed);
    return bytes == kNever ? 0 : bytes;
  }
  /// A run has made `placed`, or nothing (null), in shared memory. The largest storage of its result that
  /// nobody else held was `result`, of that size; null if there was none.
  void note(const std::byte* placed, const std::byte* result, size_t bytes) {
    const size_t before = bytes_.load(std::memory_order_relaxed);
    const size_t now = placed && placed != result ? kNever : result ? bytes : 0;
    if (before != kNever && before != now) bytes_.store(now, std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kNever = ~size_t{0};
  std::atomic<size_t> bytes_{0};
};

}  // namespace troupe::internal::actors
