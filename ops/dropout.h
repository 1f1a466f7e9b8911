// Dropout.
#pragma once
#include "core/base/seed_stream.h"
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// Each element is zero with probability p, else divided by 1 - p. Draws one number from the generator, which
/// decides for all elements: the same generator gives the same mask, whatever the strides, dtype and number
/// of threads. The gradient makes the mask anew instead of keeping it. `invalid` unless 0 <= p < 1.
Tensor dropout(const Tensor& x, double p, AnyGenerator generator);
/// With a number of current_stream(). Unless `training`, x itself.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);

/// Its attribute `seed` is the number that was drawn.
extern const Op kDropout;

}  // namespace troupe::ops
