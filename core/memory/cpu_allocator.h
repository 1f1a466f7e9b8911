// The caching allocator of the host's memory.
#pragma once
#include <cstddef>

#include "core/memory/backend.h"

namespace troupe {

/// Uninitialized bytes, 64-byte aligned. Throws std::bad_alloc if the system has no more.
void* cpu_allocate(size_t bytes);
/// `bytes`: as allocated.
void cpu_free(void* data, size_t bytes) noexcept;
AllocatorStats cpu_allocator_stats();
/// As release_cached_memory().
void release_cached_cpu_memory();

}  // namespace troupe
