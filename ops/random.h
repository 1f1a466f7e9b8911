// Tensors of random numbers: from a generator, or from the stream of where the code runs.
#pragma once
#include "core/base/seed_stream.h"
#include "core/tensor/tensor.h"

namespace troupe::ops {

/// Standard normal, of any floating dtype. The numbers are drawn in row-major order. Without a generator,
/// from next_generator() (core/base/seed_stream.h); so in the others. They are drawn on the host, so that
/// they are the same on every device.
Tensor randn(const Shape& shape, AnyGenerator generator, DType dtype = float32, Device device = cpu);
Tensor randn(const Shape& shape, DType dtype = float32, Device device = cpu);
/// Uniform in [0, 1).
Tensor rand(const Shape& shape, AnyGenerator generator, DType dtype = float32, Device device = cpu);
Tensor rand(const Shape& shape, DType dtype = float32, Device device = cpu);
/// 0 .. n-1 in random order, int64 [n].
Tensor randperm(int64_t n, AnyGenerator generator, Device device = cpu);
Tensor randperm(int64_t n, Device device = cpu);

/// Where current_stream() is, int64 [2]: to be saved, and put back when the program goes on. `invalid` if
/// `state` is none.
Tensor get_rng_state();
void set_rng_state(const Tensor& state);
/// The same of one generator.
Tensor rng_state_of(const Generator& generator);
void set_rng_state_of(Generator& generator, const Tensor& state);

}  // namespace troupe::ops
