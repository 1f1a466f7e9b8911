// Tensors of random numbers, from a generator that the caller seeds.
#pragma once
#include "core/random.h"
#include "core/tensor.h"

namespace troupe::ops {

/// Standard normal, of any floating dtype. The numbers are drawn in row-major order.
Tensor randn(const Shape& shape, Generator& generator, DType dtype = float32);
/// Uniform in [0, 1).
Tensor rand(const Shape& shape, Generator& generator, DType dtype = float32);
/// 0 .. n-1 in random order, int64 [n].
Tensor randperm(int64_t n, Generator& generator);

}  // namespace troupe::ops
