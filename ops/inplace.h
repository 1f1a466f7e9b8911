// Updates in place, for optimizers. They record nothing and bump the version of `a`.
#pragma once
#include "core/tensor.h"

namespace troupe::ops {

// All tensors have one floating dtype and one shape (`invalid` otherwise); any strides.

/// a += alpha b.
void add_(const Tensor& a, const Tensor& b, double alpha = 1);
/// a *= s.
void mul_(const Tensor& a, double s);
/// a += value b c.
void addcmul_(const Tensor& a, const Tensor& b, const Tensor& c, double value = 1);
/// a += value b / c.
void addcdiv_(const Tensor& a, const Tensor& b, const Tensor& c, double value = 1);
/// a += weight (b - a).
void lerp_(const Tensor& a, const Tensor& b, double weight);
/// a = max(a, b).
void maximum_(const Tensor& a, const Tensor& b);
/// a = sqrt(a).
void sqrt_(const Tensor& a);
/// a += s.
void add_(const Tensor& a, double s);

}  // namespace troupe::ops
