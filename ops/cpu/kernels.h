// The CPU kernels, by operator name. Each writes contiguous results from inputs of any strides.
#pragma once
#include "ops/dispatch/op.h"

namespace troupe::ops::cpu {

// arithmetic.cpp
Kernel add, sub, mul, div, pow, maximum, minimum, atan2, floor_divide, remainder, fmod, add_scalar,
    mul_scalar, div_scalar, pow_scalar, eq, ne, lt, le, gt, ge, where;
// logic.cpp
Kernel logical_and, logical_or, logical_not;
// unary.cpp
Kernel neg, abs, square, sign, floor, ceil, round, trunc, exp, expm1, log, log1p, log2, sqrt, rsqrt,
    reciprocal, sin, cos, erf, clamp;
// activation.cpp
Kernel relu, tanh, sigmoid, silu, gelu, softplus, leaky_relu, elu, relu_grad, tanh_grad, sigmoid_grad,
    silu_grad, gelu_grad;
// reduce.cpp
Kernel prod, sum, mean, amax, amin, logsumexp, var, stddev, argmax, argmin, norm, cumsum;
// softmax.cpp
Kernel softmax, log_softmax, softmax_grad, log_softmax_grad;
// norm_layer.cpp
Kernel layer_norm, rms_norm, layer_norm_grad, rms_norm_grad;
// attention.cpp
Kernel attention, attention_grad, self_attention, self_attention_grad;
// matmul.cpp
Kernel matmul, linear, linear_relu, linear_gelu, linear_add, linear_weight_grad, linear_weight_grad_adding;
// conv.cpp
Kernel conv2d, conv2d_input_grad, conv2d_weight_grad;
// pool.cpp
Kernel max_pool2d, max_pool2d_grad, max_pool2d_pick, avg_pool2d, avg_pool2d_grad;
// norm.cpp
Kernel batch_norm_train, channel_affine, channel_sums, channel_mix;
// view.cpp
Kernel clone, to, flip, tril, triu, slice_grad;
// index.cpp
Kernel embedding, embedding_grad, embedding_grad_adding, index_select, index_add, index_copy, gather,
    scatter_add, concat, pad, one_hot;
// extremes.cpp
Kernel max, min, max_along, min_along, median;
// cumulative.cpp
Kernel cumprod, cumprod_grad;
// pick.cpp
Kernel nonzero, bincount;
// sort.cpp
Kernel sort, topk;
// dropout.cpp
Kernel dropout;
// loss.cpp
Kernel nll_loss, nll_loss_grad;
// cross_entropy.cpp
Kernel cross_entropy, cross_entropy_grad;

}  // namespace troupe::ops::cpu
