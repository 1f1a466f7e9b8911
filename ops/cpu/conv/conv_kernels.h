// Convolutions of contiguous arrays, as oneDNN and as matrix products.
#pragma once
#include "ops/dispatch/window.h"

namespace troupe::ops::on_cpu {

/// x [n, channels, in], weight [outputs, channels / groups, kernel], bias [outputs] or null, y [n, outputs,
/// out].
template <class T>
struct ConvArrays {
  T *x = nullptr, *weight = nullptr, *bias = nullptr, *y = nullptr;
};

enum class ConvKind { forward, input_grad, weight_grad };

/// Writes y (forward), x (input_grad), weight and bias (weight_grad) from the others. All sizes > 0. Whole
/// images are worked on in pieces that depend on the sizes alone, and summed in a fixed order. False if
/// oneDNN has no implementation for these sizes; nothing is written then.
bool conv_onednn(ConvKind kind, const Convolution& v, const ConvArrays<float>& a);

/// The same by products with the windows of an image as columns (im2col).
void conv_columns(ConvKind kind, const Convolution& v, const ConvArrays<float>& a);
void conv_columns(ConvKind kind, const Convolution& v, const ConvArrays<double>& a);

}  // namespace troupe::ops::on_cpu
