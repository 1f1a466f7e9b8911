// Convolutions of images.
#pragma once
#include "ops/dispatch/op.h"
#include "ops/dispatch/window.h"

namespace troupe::ops {

/// x [N, C, H, W], weight [O, C / groups, kh, kw], bias [O] or undefined -> [N, O, H', W'] with
/// H' = (H + 2 padding - dilation (kh - 1) - 1) / stride + 1, rounded down. Zeros surround the image. As in
/// PyTorch, the kernel is not flipped. Any floating dtype, halves computed in float32; `invalid` if the
/// kernel is larger than the padded image or groups do not divide C and O.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Pair stride = {1, 1},
              Pair padding = {0, 0}, Pair dilation = {1, 1}, int64_t groups = 1);

extern const Op kConv2d;
/// (g [N, O, H', W'], weight; input = {H, W}) -> gradient of x: the transposed convolution.
extern const Op kConv2dInputGrad;
/// (x, g; kernel = {kh, kw}) -> gradients of weight and bias.
extern const Op kConv2dWeightGrad;

}  // namespace troupe::ops
