// A pass through many layers at once, as a step makes it, and what an optimizer takes behind it.
#pragma once
#include <cstdint>
#include <vector>

#include "core/tensor/tensor.h"
#include "core/value/value.h"
#include "parallel/measure/model_profile.h"

namespace troupe::internal::parallel {

struct WholePass {
  double seconds = 0;  ///< of the pass and back, beside all that others do meanwhile
  double optimizer =
      0;             ///< seconds of a step of Adam behind it, for one byte of parameters; 0: there are none
  double state = 0;  ///< bytes of its state, for one byte of parameters
};

/// How many layers, from the first on, take at most 2 GiB with an optimizer and with what they save of so
/// many rows; 1 at least. All workers pass through as many.
int64_t held_layers(const std::vector<troupe::parallel::LayerCost>& layers, double rows);

/// Makes the layers on the sample's device, and passes for half a second: what holds a worker up now and then
/// counts, as do caches that hold nothing of what comes next. `loss`: SomeLoss is behind them.
WholePass time_whole_pass(const ValueList& layers, const Tensor& sample, bool loss);

}  // namespace troupe::internal::parallel
