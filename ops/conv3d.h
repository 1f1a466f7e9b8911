// Convolution of volumes, made of that of images.
#pragma once
#include <array>

#include "ops/dispatch/op.h"

namespace troupe::ops {

/// A value for the depth, the height and the width.
using Triple = std::array<int64_t, 3>;

/// Input x [N, C, D, H, W] or [C, D, H, W], weight [O, C / groups, kd, kh, kw], bias [O] -> [N, O, D', H',
/// W']: a convolution of images whose channels are those of kd slices; x is copied kd times for that.
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Triple stride = {1, 1, 1},
              Triple padding = {0, 0, 0}, Triple dilation = {1, 1, 1}, int64_t groups = 1);
/// The result has the size of x, by zeros around: padding "same".
Tensor conv3d_same(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                   Triple dilation = {1, 1, 1}, int64_t groups = 1);

}  // namespace troupe::ops
