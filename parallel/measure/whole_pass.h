// A pass through many layers at once, as a step makes it, and what an optimizer takes behind it.
#pragma once
#include <cstdint>

#include "core/tensor/tensor.h"
#include "core/value/value.h"

namespace troupe::internal::parallel {

struct WholePass {
  int64_t layers = 0;  ///< from the first on: as many as a worker holds with all that they save
  double seconds = 0;  ///< of the pass and back, beside all that others do meanwhile
  double optimizer =
      0;             ///< seconds of a step of Adam behind it, for one byte of parameters; 0: there are none
  double state = 0;  ///< bytes of its state, for one byte of parameters
};

/// Makes the layers on the sample's device, and passes for half a second: what holds a worker up now and then
/// counts, as do caches that hold nothing of what comes next.
/// `most_held`: bytes of parameters, gradients, an optimizer's state and what layers save.
WholePass time_whole_pass(const ValueList& layers, const Tensor& sample,
                          double most_held = 2.0 * (int64_t{1} << 30));

}  // namespace troupe::internal::parallel
