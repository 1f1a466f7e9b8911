// Sums of slices, which several kernels need.
#pragma once
#include "ops/dispatch/geometry.h"
#include "ops/dispatch/op.h"

namespace troupe::ops::on_cuda {

/// out[o, index[k], j] += g[o, k, j], in the order of the list: the same bits from run to run. `out`,
/// contiguous, is [outer, size, inner]; g has its dtype, float32, float64 or int64. A wrong index stops the
/// device.
void add_slices(const Call& c, const Tensor& g, const Tensor& index, const Around& a, const Tensor& out);

}  // namespace troupe::ops::on_cuda
