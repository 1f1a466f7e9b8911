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
/// Gives log(1 + exp(beta x)) / beta, without overflow; x itself where beta x is above the threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
/// x for x > 0, else alpha (exp(x) - 1).
Tensor elu(const Tensor& x, double alpha = 1.0);

/// Has alpha as in elu, but of x / alpha, and so with a slope of 1 at 0; not 0.
Tensor celu(const Tensor& x, double alpha = 1.0);
/// 1.0507 elu(x, 1.6733) (Klambauer et al. 2017).
Tensor selu(const Tensor& x);
/// Gives x tanh(softplus(x)).
Tensor mish(const Tensor& x);
/// Gives x, limited to [min_val, max_val]; no gradient at the limits and beyond.
Tensor hardtanh(const Tensor& x, double min_val = -1.0, double max_val = 1.0);
Tensor relu6(const Tensor& x);
/// Gives relu6(x + 3) / 6, and x times that.
Tensor hardsigmoid(const Tensor& x);
Tensor hardswish(const Tensor& x);
/// Gives log(sigmoid(x)), without overflow.
Tensor logsigmoid(const Tensor& x);
/// Gives x above 0, else weight x: one weight, or one for each channel (dimension 1, or 0 of a 1-d tensor).
Tensor prelu(const Tensor& x, const Tensor& weight);
/// The first half along dim, times the sigmoid of the second one.
Tensor glu(const Tensor& x, int64_t dim = -1);
/// Gives x / (1 + |x|).
Tensor softsign(const Tensor& x);
/// Gives x - tanh(x).
Tensor tanhshrink(const Tensor& x);
/// Gives x, moved towards 0 by lambd >= 0, and 0 in [-lambd, lambd]; hardshrink does not move it.
Tensor softshrink(const Tensor& x, double lambd = 0.5);
Tensor hardshrink(const Tensor& x, double lambd = 0.5);
/// Gives x where it is above the threshold, else value.
Tensor threshold(const Tensor& x, double threshold, double value);
/// Gives softmax(-x).
Tensor softmin(const Tensor& x, int64_t dim);

extern const Op kCelu, kSelu, kMish, kHardtanh, kRelu6, kHardsigmoid, kHardswish, kLogsigmoid, kPrelu, kGlu,
    kSoftsign, kTanhshrink, kSoftshrink, kHardshrink, kThreshold, kSoftmin;
extern const Op kRelu, kTanh, kSigmoid, kSilu, kGelu, kSoftplus, kLeakyRelu, kElu;
/// Gradients of relu, tanh and sigmoid from the gradient and the result: one pass instead of several.
extern const Op kReluGrad, kTanhGrad, kSigmoidGrad;
/// Gradients of silu and gelu from the gradient and the input. While a graph is created (grad mode) the
/// gradient is made of other operators instead.
extern const Op kSiluGrad, kGeluGrad;
/// The derivative of gelu at x, made of operators; approximate: as "tanh".
Tensor gelu_slope(const Tensor& x, bool approximate);

}  // namespace troupe::ops
