// Activation functions, of any floating dtype (relu of integers too); results have the input's shape.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops {

Tensor relu(const Tensor& x);
/// Of integers and bools float32; so sigmoid.
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
/// x sigmoid(x).
Tensor silu(const Tensor& x);
/// approximate: "none" (x times the normal distribution function) or "tanh" (Hendrycks, Gimpel 2016).
Tensor gelu(const Tensor& x, const std::string& approximate = "none");
/// log(1 + exp(x)), without overflow.
Tensor softplus(const Tensor& x);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
/// x for x > 0, else alpha (exp(x) - 1).
Tensor elu(const Tensor& x, double alpha = 1.0);

extern const Op kRelu, kTanh, kSigmoid, kSilu, kGelu, kSoftplus, kLeakyRelu, kElu;
/// Gradients of relu, tanh and sigmoid from the gradient and the result: one pass instead of several.
extern const Op kReluGrad, kTanhGrad, kSigmoidGrad;
/// Gradients of silu and gelu from the gradient and the input. While a graph is created (grad mode) the
/// gradient is made of other operators instead.
extern const Op kSiluGrad, kGeluGrad;
/// The derivative of gelu at x, made of operators; approximate: as "tanh".
Tensor gelu_slope(const Tensor& x, bool approximate);

}  // namespace troupe::ops
