// Pooling: the largest or the mean element of windows over images.
#pragma once
#include <optional>

#include "ops/dispatch/op.h"
#include "ops/dispatch/window.h"

namespace troupe::ops {

/// x [N, C, H, W] -> [N, C, H', W'] with H' = (H + 2 padding - kernel_size) / stride + 1, rounded down. A
/// stride left out is the kernel's size. padding is at most half the kernel, and never the largest element.
/// NaN where the window has one; of equal elements the first gets the gradient.
Tensor max_pool2d(const Tensor& x, Pair kernel_size, std::optional<Pair> stride = {}, Pair padding = {0, 0});

/// The same with the mean; padding counts as zeros.
Tensor avg_pool2d(const Tensor& x, Pair kernel_size, std::optional<Pair> stride = {}, Pair padding = {0, 0});

extern const Op kMaxPool2d, kAvgPool2d;
/// (g, x): g [N, C, H', W'], each at the place of its window's largest element of x; zero elsewhere.
extern const Op kMaxPool2dGrad;
/// (v, x): the elements of v, shaped as x, that are where x has its windows' largest.
extern const Op kMaxPool2dPick;
/// (g; input = {H, W}): g spread over the windows.
extern const Op kAvgPool2dGrad;

}  // namespace troupe::ops
