// Passes that several actors begin, each for itself, and that meet.
#pragma once
#include <cstdint>

#include "core/async/future.h"
#include "core/tensor/tensor.h"

namespace troupe::internal::autograd {

/// A pass as of context_backward(), which meets others in steps that wait, under this number, of which the
/// lowest 56 bits count. Zero: nobody meets this one but itself.
Future<void> backward_meeting(const Tensors& roots, const Tensors& grads, uint64_t meeting);

}  // namespace troupe::internal::autograd
