// Convolutions of lines, transposed ones, and windows as columns: all made of conv2d and slices.
#pragma once
#include "ops/dispatch/op.h"
#include "ops/dispatch/window.h"

namespace troupe::ops {

/// It is conv2d() of lines: x [N, C, L] or [C, L], weight [O, C / groups, k] -> [N, O, L'].
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, int64_t stride = 1,
              int64_t padding = 0, int64_t dilation = 1, int64_t groups = 1);
/// The result has the size of x, by zeros around: padding "same". Behind is one more, if need
/// be.
Tensor conv2d_same(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Pair dilation = {1, 1},
                   int64_t groups = 1);
Tensor conv1d_same(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, int64_t dilation = 1,
                   int64_t groups = 1);
/// The gradient of a convolution's input as an operator of its own: x [N, C, H, W], weight [C, O / groups,
/// kh, kw] -> [N, O, H', W'] with H' = (H - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1.
/// `invalid` unless output_padding is below stride or dilation.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Pair stride = {1, 1},
                        Pair padding = {0, 0}, Pair output_padding = {0, 0}, int64_t groups = 1,
                        Pair dilation = {1, 1});
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, int64_t stride = 1,
                        int64_t padding = 0, int64_t output_padding = 0, int64_t groups = 1,
                        int64_t dilation = 1);

/// Windows of images as columns: x [N, C, H, W] -> [N, C kh kw, number of windows] (im2col).
Tensor unfold(const Tensor& x, Pair kernel_size, Pair dilation = {1, 1}, Pair padding = {0, 0},
              Pair stride = {1, 1});
/// Columns added up where they were in images of output_size: the reverse, up to how often elements occur.
Tensor fold(const Tensor& x, Pair output_size, Pair kernel_size, Pair dilation = {1, 1},
            Pair padding = {0, 0}, Pair stride = {1, 1});

/// [.., C r^2, H, W] -> [.., C, H r, W r], and back.
Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor);
Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor);

}  // namespace troupe::ops
