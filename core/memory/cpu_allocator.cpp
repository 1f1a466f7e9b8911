#include "core/memory/cpu_allocator.h"

#include <pthread.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/out_of_memory.h"
#include "core/memory/arena.h"
#include "core/memory/free_lists.h"
#include "core/memory/lent.h"

namespace troupe {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kMinBlock = 64;
constexpr size_t kMaxCachedBlock = Arena::kLargest;  // larger blocks go back to the system at once
constexpr size_t kMaxCached = size_t{2} << 30;       // bytes kept over all classes
constexpr uint32_t kUnused = 8;                      // calls of trim() that a block of the arena is kept for
constexpr Duration kBetweenTrims = std::chrono::seconds(1);

// Four size classes per power of two: at most 25 % of a block is unused.
constexpr size_t class_size(size_t bytes) {
  if (bytes <= kMinBlock) return kMinBlock;
  const size_t power = std::bit_floor(bytes - 1);
  const size_t step = std::max(power / 4, kAlignment);
  return (bytes + step - 1) / step * step;
}

constexpr size_t class_index(size_t size) {  // of a class_size
  const int power = std::bit_width(size - 1);
  const size_t floor = size_t{1} << (power - 1);
  const size_t quarter = std::max(floor / 4, kAlignment);
  return static_cast<size_t>(power) * 4 + (size - 1 - floor) / quarter;
}

// Whether blocks of this size lie in the process's arena once there is one.
constexpr bool shareable(size_t size) { return size >= Arena::kSmallest && size <= Arena::kLargest; }

// Large blocks lie on huge pages where the system has them: an addition of 2^20 floats takes 148 us instead
// of 159 to 168 (least times on a busy machine).
void* system_allocate(size_t size) {
  if (shareable(size))
    if (Arena* arena = Arena::of_process())
      if (void* p = arena->take(size)) return p;
  if (size < kHugePageBytes) return std::aligned_alloc(kAlignment, size);
  void* p = std::aligned_alloc(kHugePageBytes, (size + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes);
#if defined(MADV_HUGEPAGE)
  if (p) madvise(p, size, MADV_HUGEPAGE);  // a hint: failing does no harm
#endif
  return p;
}

void system_free(void* p, size_t size) {
  if (!Arena::has(p)) return std::free(p);
  if (Arena* arena = Arena::of_process()) return arena->give(p, size);
  ::madvise(p, size, MADV_DONTNEED);  // a child's copy; its addresses stay
}

// Whether it is of the memory that blocks of its size come from now.
bool up_to_date(const void* p, size_t size) {
  return !shareable(size) || Arena::has(p) == (Arena::of_process() != nullptr);
}

// Free blocks by size class, shared by all threads. Page faults of fresh memory cost more than the copy into
// it, so blocks are kept.
class SharedBlocks {
 public:
  void* take(size_t size) {
    if (void* p = take_kept(size)) return p;
    if (shareable(size) && Arena::of_process()) {
      collect_lent();
      if (void* p = take_kept(size)) return p;
    }
    {
      std::lock_guard lock(mutex_);
      ++system_allocations_;
    }
    void* p = system_allocate(size);
    if (!p) {
      release();
      p = system_allocate(size);
    }
    if (!p)
      throw OutOfMemory("[cpu] out of memory: " + std::to_string(size) + " bytes asked for, " +
                        std::to_string(cpu_allocator_stats().in_use) + " used by tensors of this process");
    return p;
  }

  void give(void* p, size_t size) {
    {
      std::lock_guard lock(mutex_);
      if (size <= kMaxCachedBlock && cached_ + size <= kMaxCached && up_to_date(p, size)) {
        Class& kept = classes_[class_index(size)];
        kept.size = size;
        kept.blocks.push_back({p, trims_});
        cached_ += size;
        return;
      }
    }
    system_free(p, size);
  }

  void release() {
    std::lock_guard lock(mutex_);
    for (Class& c : classes_) {
      for (const Block& b : c.blocks) system_free(b.p, c.size);
      c.blocks.clear();
    }
    cached_ = 0;
  }

  // Blocks of the arena that nobody has used for a while go back to the system; so do those of before.
  void trim() {
    std::vector<std::pair<void*, size_t>> unused;
    {
      std::lock_guard lock(mutex_);
      ++trims_;
      for (size_t i = class_index(Arena::kSmallest); i < std::size(classes_); ++i) {
        Class& c = classes_[i];
        std::erase_if(c.blocks, [&](const Block& b) {
          const bool out = !up_to_date(b.p, c.size) || (Arena::has(b.p) && trims_ - b.since > kUnused);
          if (out) unused.emplace_back(b.p, c.size), cached_ -= c.size;
          return out;
        });
      }
    }
    for (const auto& [p, size] : unused) system_free(p, size);
  }

  AllocatorStats stats() {
    std::lock_guard lock(mutex_);
    return {.cached = cached_, .system_allocations = system_allocations_};
  }

  bool open_arena(size_t bytes, std::string& why) {
    std::lock_guard lock(mutex_);  // not while a fork() is in progress
    return Arena::open(bytes, why);
  }

  // Around fork(): a child finds the lists whole, and blocks of the arena are no longer among them.
  void before_fork() TROUPE_AROUND_FORK {
    mutex_.lock();
    Arena* arena = Arena::of_process();
    if (!arena) return;
    std::vector<std::pair<std::byte*, size_t>> unused;
    for (const Class& c : classes_)
      for (const Block& b : c.blocks)
        if (Arena::has(b.p)) unused.emplace_back(static_cast<std::byte*>(b.p), c.size);
    arena->before_fork(std::move(unused));
  }
  void after_fork_in_parent() TROUPE_AROUND_FORK {
    Arena* arena = Arena::of_process();
    mutex_.unlock();
    if (arena) arena->after_fork_in_parent();
  }
  void after_fork_in_child() TROUPE_AROUND_FORK {
    if (Arena* arena = Arena::of_process()) {
      arena->after_fork_in_child();
      for (Class& c : classes_)
        std::erase_if(c.blocks, [&](const Block& b) {
          if (!Arena::has(b.p)) return false;
          cached_ -= c.size;
          return true;
        });
    }
    mutex_.unlock();
  }

 private:
  struct Block {
    void* p;
    uint32_t since;  // by trims_
  };
  struct Class {
    size_t size = 0;
    std::vector<Block> blocks;
  };

  void* take_kept(size_t size) {
    std::unique_lock lock(mutex_);
    std::vector<Block>& blocks = classes_[class_index(size)].blocks;
    while (!blocks.empty()) {
      void* const p = blocks.back().p;
      blocks.pop_back();
      cached_ -= size;
      if (up_to_date(p, size)) return p;
      lock.unlock();
      system_free(p, size);
      lock.lock();
    }
    return nullptr;
  }

  internal::Mutex mutex_;
  Class classes_[64 * 4 + 4];
  size_t cached_ = 0;
  uint64_t system_allocations_ = 0;
  uint32_t trims_ = 0;
};

// Memory belongs to the process, not to a worker. Never destroyed: tensors may outlive main.
SharedBlocks& shared() {
  static auto* instance = new SharedBlocks;
  return *instance;
}

// A count that one thread changes and any thread reads.
class Count {
 public:
  void add(int64_t n) { value_.store(get() + n, std::memory_order_relaxed); }
  int64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

constexpr size_t kSmall = 4096;            // blocks up to here pass through the thread that frees them
constexpr size_t kKeptPerClass = 1 << 15;  // bytes that a thread keeps in each class
constexpr size_t kSmallClasses = class_index(kSmall) + 1;

constexpr auto kClassSizes = [] {  // by class_index
  std::array<size_t, kSmallClasses> sizes{};
  for (size_t size = kMinBlock; size <= kSmall; size = class_size(size + 1)) sizes[class_index(size)] = size;
  return sizes;
}();

// The class_index of small sizes, by their number of kMinBlocks.
constexpr auto kSmallIndex = [] {
  std::array<uint8_t, kSmall / kMinBlock + 1> index{};
  for (size_t i = 0; i < index.size(); ++i)
    index[i] = static_cast<uint8_t>(class_index(class_size(i * kMinBlock)));
  return index;
}();
constexpr size_t small_index(size_t bytes) { return kSmallIndex[(bytes + kMinBlock - 1) / kMinBlock]; }

// The small blocks that a thread keeps, and what it has taken (freed: negative) of all sizes.
struct ThreadBlocks {
  FreeLists<kSmallClasses> lists;  // by class_index
  Count in_use, cached;
  ThreadBlocks *before = nullptr, *after = nullptr;  // of another thread

  ThreadBlocks();
  ~ThreadBlocks();
  void flush() {
    lists.drain([](size_t index, void* p) { shared().give(p, kClassSizes[index]); });
    cached.add(-cached.get());
  }
};

// All threads' blocks, for the sums over them.
struct Threads {
  internal::Mutex mutex;
  ThreadBlocks* last = nullptr;
  std::atomic<int64_t> in_use{0};  // of threads that have ended
};
constinit Threads threads_with_blocks;

// Null before the first use, and when the thread ends: blocks that destructors of other thread-locals free go
// to the shared ones.
struct BlocksOfThread {
  ThreadBlocks* blocks = nullptr;
  bool ended = false;
};
constinit thread_local BlocksOfThread blocks_here;

ThreadBlocks::ThreadBlocks() {
  std::lock_guard lock(threads_with_blocks.mutex);
  before = std::exchange(threads_with_blocks.last, this);
  if (before) before->after = this;
  blocks_here.blocks = this;
}

ThreadBlocks::~ThreadBlocks() {
  flush();
  std::lock_guard lock(threads_with_blocks.mutex);
  (after ? after->before : threads_with_blocks.last) = before;
  if (before) before->after = after;
  threads_with_blocks.in_use += in_use.get();
  blocks_here.blocks = nullptr;
  blocks_here.ended = true;
}

ThreadBlocks* thread_blocks() {
  if (blocks_here.blocks || blocks_here.ended) return blocks_here.blocks;
  thread_local ThreadBlocks blocks;
  return blocks_here.blocks;
}

// Large blocks are counted together: they take longer to fill than to count.
struct LargeBlocks {
  std::atomic<int64_t> in_use{0}, peak{0};
  void add(int64_t bytes) {
    const int64_t now = in_use.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t before = peak.load(std::memory_order_relaxed);
    while (now > before && !peak.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
    }
  }
};
constinit LargeBlocks large_blocks;

void count_in_use(ThreadBlocks* mine, int64_t bytes) {
  if (mine)
    mine->in_use.add(bytes);
  else
    threads_with_blocks.in_use += bytes;
}

}  // namespace

void* cpu_allocate(size_t bytes) {
  ThreadBlocks* mine = thread_blocks();
  if (bytes <= kSmall) {
    const size_t index = small_index(bytes);
    const auto size = static_cast<int64_t>(kClassSizes[index]);
    void* p = mine ? mine->lists.pop(index) : nullptr;
    if (p)
      mine->cached.add(-size);
    else
      p = shared().take(kClassSizes[index]);
    count_in_use(mine, size);
    return p;
  }
  const size_t size = class_size(bytes);
  void* p = shared().take(size);
  count_in_use(mine, static_cast<int64_t>(size));
  large_blocks.add(static_cast<int64_t>(size));
  return p;
}

void cpu_free(void* p, size_t bytes) noexcept {
  ThreadBlocks* mine = thread_blocks();
  if (bytes <= kSmall) {
    const size_t index = small_index(bytes);
    const auto size = static_cast<int64_t>(kClassSizes[index]);
    count_in_use(mine, -size);
    if (mine && mine->lists.push(index, p, kKeptPerClass / kClassSizes[index]))
      mine->cached.add(size);
    else
      shared().give(p, kClassSizes[index]);
    return;
  }
  const size_t size = class_size(bytes);
  count_in_use(mine, -static_cast<int64_t>(size));
  large_blocks.add(-static_cast<int64_t>(size));
  shared().give(p, size);
}

AllocatorStats cpu_allocator_stats() {
  const bool lends = Arena::of_process() != nullptr;
  if (lends) collect_lent();  // what has come back is not in use
  AllocatorStats stats = shared().stats();
  if (lends) stats.lent = lent_bytes();
  std::lock_guard lock(threads_with_blocks.mutex);
  int64_t in_use = threads_with_blocks.in_use, cached = 0;
  for (const ThreadBlocks* t = threads_with_blocks.last; t; t = t->before)
    in_use += t->in_use.get(), cached += t->cached.get();
  stats.in_use = static_cast<size_t>(in_use);
  stats.cached += static_cast<size_t>(cached);
  return stats;
}

size_t take_cpu_peak() {
  const int64_t now = large_blocks.in_use.load(std::memory_order_relaxed);
  return static_cast<size_t>(
      std::max<int64_t>(0, large_blocks.peak.exchange(now, std::memory_order_relaxed)));
}

bool open_cpu_arena(size_t bytes, std::string& why) {
  // Before there is one: a child that fork() makes has copies of what is in it.
  static const int registered =
      ::pthread_atfork([] { shared().before_fork(); }, [] { shared().after_fork_in_parent(); },
                       [] { shared().after_fork_in_child(); });
  if (registered != 0) return why = "no memory for a handler of fork()", false;
  return shared().open_arena(bytes, why);
}

void trim_cpu_memory(TimePoint at) {
  static std::atomic<int64_t> last{0};
  const int64_t now = at.time_since_epoch().count();
  int64_t before = last.load(std::memory_order_relaxed);
  if (now - before < kBetweenTrims.count() || !last.compare_exchange_strong(before, now)) return;
  collect_lent();
  if (Arena::of_process()) shared().trim();
}

void release_cached_cpu_memory() {
  if (Arena::of_process()) collect_lent();
  if (ThreadBlocks* mine = thread_blocks()) mine->flush();
  shared().release();
}

}  // namespace troupe
