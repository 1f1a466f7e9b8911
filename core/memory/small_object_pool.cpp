#include "core/memory/small_object_pool.h"

#include <new>

#include "core/base/compiler.h"
#include "core/memory/free_lists.h"

namespace troupe {
namespace {

constexpr size_t kStep = 32, kLargest = 1024;  // sizes that are kept, in bytes
#if TROUPE_ASAN || TROUPE_TSAN
constexpr size_t kKept = 0;
#else
constexpr size_t kKept = 128;  // blocks of one size
#endif

using Lists = FreeLists<kLargest / kStep + 1>;

constexpr size_t size_class(size_t bytes) { return (bytes + kStep - 1) / kStep; }

// What the thread keeps. Null before the first use and when the thread ends: objects that are freed by
// destructors of other thread-locals go to the system.
struct ThreadLists {
  Lists* lists = nullptr;
  bool ended = false;
};
constinit thread_local ThreadLists thread_lists;

struct Owner {
  Lists lists;
  Owner() { thread_lists.lists = &lists; }
  ~Owner() {
    thread_lists.lists = nullptr;
    thread_lists.ended = true;
    lists.drain([](size_t, void* block) { ::operator delete(block); });
  }
};

Lists* lists() {
  if (thread_lists.lists || thread_lists.ended) return thread_lists.lists;
  thread_local Owner owner;
  return thread_lists.lists;
}

}  // namespace

void* pool_allocate(size_t bytes) {
  if (bytes > kLargest) return ::operator new(bytes);
  if (Lists* kept = lists())
    if (void* block = kept->pop(size_class(bytes))) return block;
  return ::operator new(size_class(bytes) * kStep);
}

void pool_free(void* memory, size_t bytes) {
  if (bytes <= kLargest)
    if (Lists* kept = lists(); kept && kept->push(size_class(bytes), memory, kKept)) return;
  ::operator delete(memory);
}

}  // namespace troupe
