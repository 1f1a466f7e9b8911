// The checks that every operator has to pass, on its own samples.
#pragma once
#include <string>
#include <vector>

#include "ops/dispatch/op.h"

namespace troupe::autograd {

/// Checks `op` on its samples and gives its mistakes, a line each, or nothing: "[cube] sample 1, second
/// derivative: element 3 of ...". `invalid` if it has no samples.
///
/// Compared are results with the shape rule, first and second derivatives with central differences in
/// float64, strided and expanded inputs with contiguous ones, float32 with float64, bfloat16 and float16
/// with float32, and a kernel that adds with the other one; nothing may be recorded where no gradient is
/// asked for. All on the CPU. Samples are float64; kernels take float32, too.
std::vector<std::string> opcheck(const ops::Op& op);

}  // namespace troupe::autograd
