// Normalization of each row over the trailing dimensions.
#pragma once
#include <optional>

#include "ops/dispatch/op.h"

namespace troupe::ops {

/// (x - mean) / sqrt(var + eps) * weight + bias, mean and (biased) variance over the trailing dimensions,
/// which are normalized_shape: x [..., normalized_shape], weight and bias [normalized_shape], or undefined:
/// ones and none. `invalid` for other shapes. Ba, Kiros, Hinton 2016.
Tensor layer_norm(const Tensor& x, const IntList& normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);
/// x / sqrt(mean(x^2) + eps) * weight; without eps, that of x's dtype. Zhang, Sennrich 2019.
Tensor rms_norm(const Tensor& x, const IntList& normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {});

extern const Op kLayerNorm, kRmsNorm;
/// Gradients of input, weight and bias in one pass over the rows, from (gradient, x, weight). While a graph
/// is created (grad mode) the gradients are made of other operators instead.
extern const Op kLayerNormGrad, kRmsNormGrad;

}  // namespace troupe::ops
