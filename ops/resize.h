// Images and lines in another size: interpolation and adaptive pooling.
#pragma once
#include <optional>

#include "ops/dispatch/op.h"

namespace troupe::ops {

/// Gives x [N, C, ..] with 1 to 3 dimensions resized, to `size`, or to floor(size scale_factor) each: one of
/// both, one number for all dimensions or one for each. mode: "nearest", "nearest-exact", "linear" (of
/// lines), "bilinear", "trilinear", "bicubic" and "area", as in PyTorch. align_corners: the corners keep
/// their places; not for the first two and "area". recompute_scale_factor: places go by the sizes, which are
/// whole, and not by scale_factor. antialias: of "bilinear" and "bicubic", elements of a smaller result are
/// made of all that they stand for.
Tensor interpolate(const Tensor& x, const std::optional<IntList>& size,
                   const std::vector<double>& scale_factor = {}, const std::string& mode = "nearest",
                   std::optional<bool> align_corners = {}, bool recompute_scale_factor = false,
                   bool antialias = false);

/// Means over windows that cut each of the last dimensions in output_size parts of about one size (-1: as it
/// is).
Tensor adaptive_avg_pool1d(const Tensor& x, int64_t output_size);
Tensor adaptive_avg_pool2d(const Tensor& x, const IntList& output_size);
/// Their largest elements, of which the first one gets the gradient.
Tensor adaptive_max_pool1d(const Tensor& x, int64_t output_size);
Tensor adaptive_max_pool2d(const Tensor& x, const IntList& output_size);
/// They give the places, too: that in the line; row W + column in the image.
ValuesAndIndices adaptive_max_pool1d_with_indices(const Tensor& x, int64_t output_size);
ValuesAndIndices adaptive_max_pool2d_with_indices(const Tensor& x, const IntList& output_size);

/// Each channel of each sample x [N, C, ..], normalized by its own mean and variance; weight and bias [C] or
/// undefined. With running statistics [C]: those move by `momentum` to the means over all samples; or,
/// without use_input_stats, x is normalized by them.
Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);
Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                     const Tensor& weight, const Tensor& bias, bool use_input_stats, double momentum,
                     double eps);

}  // namespace troupe::ops
