// A stream of bytes through memory that two sides see: one writes, the other reads, and neither believes the
// other.
//
//   tail    bytes written since the beginning; the writer's
//   head    bytes read since the beginning; the reader's
//   reader  what the reader does: it polls; or it has polled for the last time, and sleeps until a bell
//   rings,
//           or on this very word (a futex), and whoever writes now has to wake it
//   core    the processor that the reader polls from, counted from 1; with kAway the one that it polled from
//           before it went to sleep; 0: not known
//   beats   counted up by the writer's process from time to time, as long as it lives and runs
//
// The writer stores tail, then reads reader; the reader stores reader, then reads tail. One of them sees the
// other (all four are sequentially consistent), so no message is left lying while the reader sleeps.
//
// The other side may write anything into the control block at any time. So each side keeps its own number to
// itself, checks the other's each time it reads it, and copies what it takes before it looks at it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::internal::net {

/// In the shared memory; all zero at first.
struct RingControl {
  alignas(64) std::atomic<uint64_t> tail;
  alignas(64) std::atomic<uint64_t> head;
  alignas(64) std::atomic<uint32_t> reader;
  std::atomic<uint32_t> core;
  alignas(64) std::atomic<uint32_t> beats;
  static constexpr uint32_t kAway = uint32_t{1} << 31;
};

/// RingControl::reader.
enum class RingState : uint32_t {
  polls = 0,     ///< nobody has to be woken
  for_bell = 1,  ///< a thread that sleeps has to be woken with the doorbell
  on_word = 2    ///< a thread sleeps on the word
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

/// Where the bytes are. `data` is there twice, one after the other, so that no run of bytes has an end in the
/// middle.
struct RingMemory {
  RingControl* control = nullptr;
  std::byte* data = nullptr;
  size_t capacity = 0;  ///< a power of two
};

/// Not thread-safe, but for word(), reader_core() and beat().
class RingWriter {
 public:
  explicit RingWriter(const RingMemory& memory) : memory_(memory) {}
  /// Takes all of the parts or, if there is no room for all, none. Throws `invalid` if the reader claims to
  /// have read what was not written.
  bool write(std::span<const std::span<const std::byte>> parts);
  /// After a write: what the reader was doing. It counts as awake from now on, so whoever is told that it
  /// sleeps has to wake it.
  RingState wake();
  const std::atomic<uint32_t>& word() const { return memory_.control->reader; }
  void beat() const { memory_.control->beats.fetch_add(1, std::memory_order_relaxed); }
  /// RingControl::core; only a hint.
  uint32_t reader_core() const { return memory_.control->core.load(std::memory_order_relaxed); }

 private:
  RingMemory memory_;
  uint64_t tail_ = 0, head_ = 0;  // head_: as it was last seen
};

/// Not thread-safe, but for sleep(), wake_up(), poll_from(), word() and beats().
class RingReader {
 public:
  explicit RingReader(const RingMemory& memory) : memory_(memory) {}
  /// What was written and not yet taken, in place: to be copied before it is looked at. Throws `invalid` if
  /// the writer claims to have written more than there is room for.
  std::span<const std::byte> unread() const;
  bool empty() const { return memory_.control->tail.load() == head_; }
  /// Gives the first `n` bytes of unread() back to the writer.
  void take(size_t n);

  /// Nobody polls any more: the writer has to wake somebody from now on. What it wrote before may not have
  /// been seen: the caller polls once again after this.
  void sleep(RingState how) {
    memory_.control->core.fetch_or(RingControl::kAway, std::memory_order_relaxed);
    memory_.control->reader.store(static_cast<uint32_t>(how));
  }
  /// Somebody polls.
  void wake_up() {
    memory_.control->reader.store(static_cast<uint32_t>(RingState::polls), std::memory_order_relaxed);
  }
  const std::atomic<uint32_t>& word() const { return memory_.control->reader; }
  uint32_t beats() const { return memory_.control->beats.load(std::memory_order_relaxed); }
  void poll_from(uint32_t core) { memory_.control->core.store(core, std::memory_order_relaxed); }

 private:
  RingMemory memory_;
  uint64_t head_ = 0;
};

}  // namespace troupe::internal::net
