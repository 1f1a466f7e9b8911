// Passes that several actors begin, each for itself, and that meet.
#pragma once
#include <cstdint>

#include "autograd/split_pass.h"
#include "core/async/future.h"
#include "core/tensor/tensor.h"

namespace troupe::internal::autograd {

/// A pass as of context_backward(), which meets others in steps that wait, under this number, of which the
/// lowest 56 bits count. Zero: nobody meets this one but itself.
Future<void> backward_meeting(const Tensors& roots, const Tensors& grads, uint64_t meeting);
/// The first part of a pass that waits (SplitPass), in the same way: gives the gradients of its inputs. Its
/// second part may follow then, on this thread.
Future<Tensors> first_part_meeting(SplitPass& pass, const Tensors& grads, uint64_t meeting);

}  // namespace troupe::internal::autograd
