// What writes in place need to know of recorded steps.
#pragma once
#include "core/graph/node.h"
#include "core/tensor/tensor.h"

namespace troupe::ops {

/// The result at `edge` of a recorded operator was copied to `t`: if its gradient rule reads it, it reads `t`
/// from now on, so that nothing is kept twice and a later write to `t` is noticed.
void result_is_now_in(const Edge& edge, const Tensor& t);

}  // namespace troupe::ops
