// Numbers that are unique in the cluster: that of the worker that made them, and its count from 1. Contexts,
// passes and messages of passes have such.
#pragma once
#include "core/value/value.h"

namespace troupe::internal {

inline constexpr WorkerId kOwners = 1 << 24;  ///< numbers of owners are below it

inline uint64_t owned_number(WorkerId owner, uint64_t count) { return (uint64_t{owner} << 40) | count; }
inline WorkerId owner_of_number(uint64_t number) { return static_cast<WorkerId>(number >> 40); }
inline uint64_t count_of_number(uint64_t number) { return number & ((uint64_t{1} << 40) - 1); }

}  // namespace troupe::internal
