// Normalization of channels: of a batch, by given statistics, and in groups.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// What batch_norm_train computes: y like x; mean and variance (divided by n, not n - 1) of each channel,
/// [C], of a bfloat16 or float16 x in float32.
struct BatchNorm {
  Tensor y, mean, var;
};

/// x [N, C, ...], weight and bias [C] -> y = (x - mean) / sqrt(var + eps) weight + bias, where mean and var
/// are those of the batch, over all dimensions but C, and carry gradients too. Sums are taken in float64. Of
/// no elements (N = 0) mean and var are 0: leave them out of running statistics. together: so many channels,
/// one after the other, share mean and var, which are [C / together] then. `invalid` unless eps is above 0.
BatchNorm batch_norm_train(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5,
                           int64_t together = 1);

/// The same with given mean and var [C].
Tensor batch_norm_eval(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                       const Tensor& var, double eps = 1e-5);

/// x [N, C, ...], weight and bias [C], or undefined: ones and zeros. C is cut into `groups` equal runs, and
/// each run of each sample is normalized by its own mean and variance. `invalid` if groups does not divide C.
Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

extern const Op kBatchNormTrain, kBatchNormEval, kGroupNorm;
/// (x [N, C, ...], center, scale, shift [C]) -> scale (x - center) + shift.
extern const Op kChannelAffine;
/// (g, x [N, C, ...], center [C]) -> sums over each channel of g and of g (x - center), both [C].
extern const Op kChannelSums;
/// (g, x [N, C, ...], center, a, b, c [C]) -> a g + b (x - center) + c.
extern const Op kChannelMix;

}  // namespace troupe::ops
