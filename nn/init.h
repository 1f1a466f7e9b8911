// Initial values of parameters, written in place. Nothing here is recorded.
#pragma once
#include <cstdint>

#include "core/base/seed_stream.h"
#include "core/tensor/tensor.h"

namespace troupe::nn::init {

/// Uniform in [low, high). Elements are drawn in row-major order; so in the others.
void uniform_(const Tensor& t, double low = 0, double high = 1, AnyGenerator generator = next_generator());
void normal_(const Tensor& t, double mean = 0, double deviation = 1,
             AnyGenerator generator = next_generator());
/// Normal, but drawn again where it falls outside [low, high] (both included), which must hold some of the
/// values within 8 deviations of the mean.
void trunc_normal_(const Tensor& t, double mean = 0, double deviation = 1, double low = -2, double high = 2,
                   AnyGenerator generator = next_generator());
void constant_(const Tensor& t, double value);
void zeros_(const Tensor& t);
void ones_(const Tensor& t);
/// Uniform with bound gain * sqrt(6 / (inputs + outputs)) (Glorot, Bengio 2010). t: [out, in, ...], at least
/// 2-d.
void xavier_uniform_(const Tensor& t, double gain = 1, AnyGenerator generator = next_generator());
/// Uniform with bound sqrt(6 / ((1 + slope^2) inputs)) (He et al. 2015); slope: that of the leaky ReLU that
/// follows, 0 for ReLU. t: [out, in, ...], at least 2-d.
void kaiming_uniform_(const Tensor& t, double slope = 0, AnyGenerator generator = next_generator());
/// The same two with a normal distribution: the deviation is the bound / sqrt(3).
void xavier_normal_(const Tensor& t, double gain = 1, AnyGenerator generator = next_generator());
void kaiming_normal_(const Tensor& t, double slope = 0, AnyGenerator generator = next_generator());
/// Seen as a matrix [out, rest], gain times orthonormal rows, or columns if there are fewer (Saxe et al.
/// 2013). At least 2-d.
void orthogonal_(const Tensor& t, double gain = 1, AnyGenerator generator = next_generator());
/// Element i becomes scale * (2 u - 1), with u in [0, 1) made of splitmix64(parameter * 2^32 + i): values
/// that any other program can make too, to compare training runs.
void splitmix_(const Tensor& t, uint64_t parameter, double scale);

}  // namespace troupe::nn::init
