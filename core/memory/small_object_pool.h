// Memory for the small objects that come and go with every operator: tensors, storages, graph nodes.
#pragma once
#include <cstddef>

namespace troupe {

/// As operator new and sized operator delete, from lists of freed blocks that each thread keeps. Any thread
/// may free; the block then stays with that thread. Under the sanitizers nothing is kept, so that they see
/// every use.
void* pool_allocate(size_t bytes);
void pool_free(void* memory, size_t bytes);

}  // namespace troupe
