// What attention makes of projected inputs, for modules that have some of its heads.
#pragma once
#include "nn/dropout.h"

namespace troupe::nn {

/// projected [batch, time, 3 * width], the queries, keys and values of all heads -> [batch, time, width]:
/// each position's mix of values. Causal: position i sees 0 to i. `dropout` is of the weights.
Tensor mixed_heads(const Tensor& projected, int64_t heads, bool causal, Dropout& dropout);

}  // namespace troupe::nn
