// Data parallel: the gradients of one model that several actors train, each on its own part of a batch.
#pragma once
#include "actors/cell/task.h"
#include "collective/group.h"

namespace troupe::parallel {

/// Puts the mean over the members of a group in the place of the gradients that `leaves` have in the context
/// of the call being handled: after the backward pass, before the optimizer's step. In methods of all
/// members: co_await average_gradients(...).
///
/// Weighted by `weight` (numbers of examples, say): the sum of weight * gradient, divided by the sum of the
/// weights. Every member gets the same bits. A leaf without a gradient counts as zeros; it stays without one
/// if no member has one. Whoever has nothing left to train on goes on with weight 0.
///
/// Errors are those of operations of groups; and `invalid` unless the weights have a sum above 0.
Task<void> average_gradients(Group group, Tensors leaves, double weight = 1);

}  // namespace troupe::parallel
