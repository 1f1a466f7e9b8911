// Which processor a thread runs on, and going to another one.
#pragma once
#include <cstdint>

namespace troupe::internal::net {

/// Of the calling thread, counted from 1; 0: not known. May have changed by the time it is looked at.
uint32_t this_core();
/// Moves the calling thread to another one of the processors that it may use, if there is one. It may come
/// back at any time.
void migrate_cpu();

}  // namespace troupe::internal::net
