// Pinned memory of the host, kept for reuse.
#pragma once
#include <memory>

#include "core/memory/pinned_buffer.h"

namespace troupe::cuda {

/// Null if the device has as much in use as it may have, or the system gives no more.
std::shared_ptr<PinnedBuffer> pinned_buffer(size_t bytes, Device device);
/// Bytes in use, those that copies still use included.
size_t pinned_in_use(Device device);
/// Gives the memory that is not in use back to the system.
void release_pinned(Device device);

}  // namespace troupe::cuda
