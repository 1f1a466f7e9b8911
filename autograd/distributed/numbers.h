// Contexts, passes and messages of passes have numbers that are unique in the cluster: that of the worker
// that made them, and its count from 1.
#pragma once
#include "core/value/value.h"

namespace troupe::autograd {

inline uint64_t number_of(WorkerId originator, uint64_t count) {
  return (uint64_t{originator} << 40) | count;
}
inline WorkerId originator_of(uint64_t number) { return static_cast<WorkerId>(number >> 40); }
inline uint64_t count_of(uint64_t number) { return number & ((uint64_t{1} << 40) - 1); }

}  // namespace troupe::autograd
