// Tensors of random numbers: from a generator, or from the stream of where the code runs.
#pragma once
#include "core/base/seed_stream.h"
#include "core/tensor/creation.h"

namespace troupe::ops {

/// Standard normal, of any floating dtype. The numbers are drawn in row-major order. Without a generator,
/// from next_generator() (core/base/seed_stream.h); so in the others. They are drawn on the host, so that
/// they are the same on every device.
Tensor randn(const Shape& size, AnyGenerator generator, const TensorOptions& options = {});
Tensor randn(const Shape& size, const TensorOptions& options = {});
/// Uniform in [0, 1).
Tensor rand(const Shape& size, AnyGenerator generator, const TensorOptions& options = {});
Tensor rand(const Shape& size, const TensorOptions& options = {});
/// Integers in [low, high), int64 unless the options say otherwise; low is 0 if left out.
Tensor randint(int64_t low, int64_t high, const Shape& size, AnyGenerator generator,
               const TensorOptions& options = {});
Tensor randint(int64_t low, int64_t high, const Shape& size, const TensorOptions& options = {});
Tensor randint(int64_t high, const Shape& size, AnyGenerator generator, const TensorOptions& options = {});
Tensor randint(int64_t high, const Shape& size, const TensorOptions& options = {});
/// 0 .. n-1 in random order, int64 [n].
Tensor randperm(int64_t n, AnyGenerator generator, const TensorOptions& options = {});
Tensor randperm(int64_t n, const TensorOptions& options = {});

// Of the size of another tensor, and of its dtype and device where the options do not say.
Tensor rand_like(const Tensor& input, const TensorOptions& options = {});
Tensor randn_like(const Tensor& input, const TensorOptions& options = {});
Tensor randint_like(const Tensor& input, int64_t high, const TensorOptions& options = {});
Tensor randint_like(const Tensor& input, int64_t low, int64_t high, const TensorOptions& options = {});

/// 1 with the probability that the element is, else 0: of the size and dtype of input. Not recorded.
/// `invalid` of an element outside [0, 1].
Tensor bernoulli(const Tensor& input, AnyGenerator generator = next_generator());
/// num_samples places of each row [n] of input ([n] or [m, n], floating), drawn with probabilities that are
/// proportional to its elements: int64. Not recorded. `invalid` of elements below 0 or not finite, of rows of
/// zeros, and, without replacement, of more samples than elements above 0.
Tensor multinomial(const Tensor& input, int64_t num_samples, bool replacement = false,
                   AnyGenerator generator = next_generator());

/// Where current_stream() is, int64 [2]: to be saved, and put back when the program goes on. `invalid` if
/// `state` is none.
Tensor get_rng_state();
void set_rng_state(const Tensor& state);
/// The same of one generator.
Tensor rng_state_of(const Generator& generator);
void set_rng_state_of(Generator& generator, const Tensor& state);

}  // namespace troupe::ops
