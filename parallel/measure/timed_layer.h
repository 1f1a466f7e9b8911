// What one layer takes, forward and in both parts of its backward pass.
#pragma once
#include "autograd/sink.h"
#include "nn/module.h"

namespace troupe::internal::parallel {

struct TimedLayer {
  Tensor y;                                   ///< its result, without a graph
  double forward = 0, input = 0, weight = 0;  ///< seconds, until the device has done it
  double backward = 0;                        ///< both parts at once, which less has to be kept for
  double adding = 0;                          ///< seconds more, where it adds to gradients that are there
  double saved = 0;                           ///< bytes that it left for the backward pass, y among them
  double working = 0;                         ///< bytes that it had at most besides, on the CPU
  double total() const { return forward + (backward > 0 ? backward : input + weight); }
};

enum class Backward { whole, in_parts };

/// Runs it once on x, which is no part of a graph, and back. No gradients are left in the layer; those that
/// draw random numbers or count batches do so. `sums`: takes the gradients; null: nobody does.
TimedLayer time_layer(nn::Layer& layer, const Tensor& x, Backward how, autograd::Sink* sums = nullptr);
/// The mean of so many runs in both ways, behind some that do not count: what others do meanwhile on the
/// machine counts, as it does in a step. `saved` is the least of all.
TimedLayer time_layer(nn::Layer& layer, const Tensor& x, int64_t repeats);

}  // namespace troupe::internal::parallel
