// Replicas: the same parameters on several workers, each trained on its own part of a batch, whose gradients
// are made equal before the step.
#pragma once
#include <set>
#include <string>

#include "actors/cell/task.h"
#include "core/tensor/tensor.h"

namespace troupe::parallel {

/// Who takes part: one actor of each worker. All give the same name and workers.
struct Replicas {
  std::string name;            ///< of the group; several may have the same workers
  std::set<WorkerId> workers;  ///< numbers
  Duration timeout = std::chrono::seconds(60);
};

/// For each tensor the mean of those that all replicas give, by their weights (numbers of examples, say): the
/// sum of weight * tensor, divided by the sum of the weights. In methods: co_await all_reduce_mean(...). The
/// n-th calls of all replicas belong together. Every replica gets the same bits. An undefined tensor counts
/// as zeros; undefined if nobody gives one. Whoever has nothing left to train on goes on with weight 0.
///
/// Everything goes by the worker with the smallest number, and from there to all: for a few replicas.
///
/// `disconnected`, naming it, at all replicas that wait when one is lost; `deadline`, naming who did not
/// come; `invalid` for tensors that differ in number, shape or dtype, unless the weights have a sum above 0,
/// and if another actor of this worker, still alive, takes part in the same group.
Task<Tensors> all_reduce_mean(Replicas group, Tensors tensors, double weight = 1);

/// Puts the mean over the replicas in the place of the gradients that `leaves` have in the context of the
/// call being handled: after the backward pass, before the optimizer's step. Else as above.
Task<void> average_gradients(Replicas group, Tensors leaves, double weight = 1);

}  // namespace troupe::parallel
