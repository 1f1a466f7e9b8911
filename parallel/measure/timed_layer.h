// What one layer takes, forward and in both parts of its backward pass.
#pragma once
#include "nn/module.h"

namespace troupe::internal::parallel {

struct TimedLayer {
  Tensor y;                                   ///< its result, without a graph
  double forward = 0, input = 0, weight = 0;  ///< seconds, until the device has done it
  double saved = 0;                           ///< bytes that it left for the backward pass, y among them
  double working = 0;                         ///< bytes that it had at most besides, on the CPU
  double total() const { return forward + input + weight; }
};

/// Runs it once on x, which is no part of a graph. No gradients are left; layers that draw random numbers or
/// count batches do so.
TimedLayer time_layer(nn::Layer& layer, const Tensor& x);
/// The quickest of some runs, behind one that does not count: what others do on the machine counts least
/// then, and what is always shared counts. `saved` is the least of all.
TimedLayer time_layer(nn::Layer& layer, const Tensor& x, int64_t repeats);

}  // namespace troupe::internal::parallel
