// The caching allocator of the host's memory.
#pragma once
#include <cstddef>
#include <string>

#include "core/base/clock.h"
#include "core/memory/backend.h"

namespace troupe {

/// Uninitialized bytes, 64-byte aligned. Throws std::bad_alloc if the system has no more.
void* cpu_allocate(size_t bytes);
/// `bytes`: as allocated.
void cpu_free(void* data, size_t bytes) noexcept;
AllocatorStats cpu_allocator_stats();
/// The most that blocks which no thread keeps for itself (of more than 4 KiB) had in use at a time,
/// since the last call.
size_t take_cpu_peak();
/// From now on blocks of Arena::kSmallest bytes to 1 GiB lie in the process's arena (core/memory/arena.h),
/// where other processes may be shown them. Those of before stay as they are, and go back to the system when
/// they are freed. False, with the reason in `why`, where the system refuses: nothing has changed then.
bool open_cpu_arena(size_t bytes, std::string& why);
/// To be called at times, on any thread: takes back what other processes have let go of, and gives blocks of
/// the arena that nobody has used for some seconds to the system. Does nothing within a second of the last
/// time.
void trim_cpu_memory(TimePoint now);
/// As release_cached_memory().
void release_cached_cpu_memory();

}  // namespace troupe
