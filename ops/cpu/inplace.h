// Kernels of ops/inplace.h; shapes and dtypes are checked there.
#pragma once
#include "core/tensor/tensor.h"

namespace troupe::ops::cpu {

void add_(const Tensor& a, const Tensor& b, double alpha);
void affine_(const Tensor& a, double scale, double shift);
void addcmul_(const Tensor& a, const Tensor& b, const Tensor& c, double value);
void addcdiv_(const Tensor& a, const Tensor& b, const Tensor& c, double value);
void lerp_(const Tensor& a, const Tensor& b, double weight);
void maximum_(const Tensor& a, const Tensor& b);
void sqrt_(const Tensor& a);

}  // namespace troupe::ops::cpu
