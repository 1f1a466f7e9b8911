// A stream of bytes through memory that two sides see: one writes, the other reads, and neither believes the
// other.
//
//   tail    bytes written since the beginning; the writer's
//   head    bytes read since the beginning; the reader's
//   asleep  the reader has looked for the last time: whoever writes now has to wake it by other means
//   core    the processor that the reader looks from, counted from 1; with kAway the one that it looked from
//           before it went to sleep; 0: not known
//
// The writer stores tail, then reads asleep; the reader stores asleep, then reads tail. One of them sees the
// other (all four are sequentially consistent), so no message is left lying while the reader sleeps.
//
// The other side may write anything into the control block at any time. So each side keeps its own number to
// itself, checks the other's each time it reads it, and copies what it takes before it looks at it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::net {

/// In the shared memory; all zero at first.
struct RingControl {
  alignas(64) std::atomic<uint64_t> tail;
  alignas(64) std::atomic<uint64_t> head;
  alignas(64) std::atomic<uint32_t> asleep;
  std::atomic<uint32_t> core;
  static constexpr uint32_t kAway = uint32_t{1} << 31;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

/// Where the bytes are. `data` is there twice, one after the other, so that no run of bytes has an end in the
/// middle.
struct RingMemory {
  RingControl* control = nullptr;
  std::byte* data = nullptr;
  size_t capacity = 0;  ///< a power of two
};

/// Not thread-safe.
class RingWriter {
 public:
  explicit RingWriter(const RingMemory& memory) : memory_(memory) {}
  /// Takes all of the parts or, if there is no room for all, none. Throws `invalid` if the reader claims to
  /// have read what was not written.
  bool write(std::span<const std::span<const std::byte>> parts);
  /// After a write: whether the reader sleeps and has to be woken. True once for each time that it went to
  /// sleep.
  bool must_wake();
  /// RingControl::core; only a hint.
  uint32_t reader_core() const { return memory_.control->core.load(std::memory_order_relaxed); }

 private:
  RingMemory memory_;
  uint64_t tail_ = 0, head_ = 0;  // head_: as it was last seen
};

/// Not thread-safe, but for sleep(), wake_up() and look_from().
class RingReader {
 public:
  explicit RingReader(const RingMemory& memory) : memory_(memory) {}
  /// What was written and not yet taken, in place: to be copied before it is looked at. Throws `invalid` if
  /// the writer claims to have written more than there is room for.
  std::span<const std::byte> unread() const;
  bool empty() const { return memory_.control->tail.load() == head_; }
  /// Gives the first `n` bytes of unread() back to the writer.
  void take(size_t n);

  /// Nobody looks any more: the writer has to wake somebody from now on. What it wrote before may not have
  /// been seen: the caller looks once again after this.
  void sleep() {
    memory_.control->core.fetch_or(RingControl::kAway, std::memory_order_relaxed);
    memory_.control->asleep.store(1);
  }
  /// Somebody looks.
  void wake_up() { memory_.control->asleep.store(0, std::memory_order_relaxed); }
  void look_from(uint32_t core) { memory_.control->core.store(core, std::memory_order_relaxed); }

 private:
  RingMemory memory_;
  uint64_t head_ = 0;
};

}  // namespace troupe::net
