// Normalization of each row over the trailing dimensions.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

/// (x - mean) / sqrt(var + eps) * weight + bias, mean and (biased) variance over the trailing dimensions that
/// weight spans: x [..., width...], weight and bias [width...]. Without bias none is added. `invalid` if x
/// does not end in weight's shape. Ba, Kiros, Hinton 2016.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, double eps = 1e-5);
/// The same without weight and bias; normalized_shape: the trailing dimensions.
Tensor layer_norm(const Tensor& x, const std::vector<int64_t>& normalized_shape, double eps = 1e-5);
/// x / sqrt(mean(x^2) + eps) * weight. Zhang, Sennrich 2019.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-6);

extern const Op kLayerNorm, kRmsNorm;
/// Gradients of input, weight and bias in one pass over the rows, from (gradient, x, weight). While a graph
/// is created (grad mode) the gradients are made of other operators instead.
extern const Op kLayerNormGrad, kRmsNormGrad;

}  // namespace troupe::ops
