// Two operands of one floating dtype.
#pragma once
#include "ops/cpu/loops/loops.h"

namespace troupe::ops::on_cpu {

/// out[0] = f(in[0], in[1]) in the floating dtype of the result.
template <class F>
void floating2(const Call& c, Tensors& out, F f) {
  visit_floating(out[0].dtype(),
                 [&](auto zero) { map2<decltype(zero), decltype(zero)>(c.in[0], c.in[1], out[0], f); });
}

}  // namespace troupe::ops::on_cpu
