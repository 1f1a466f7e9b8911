// What normalization layers have in common: scales, shifts and eps, checked.
#pragma once
#include "core/tensor/tensor.h"

namespace troupe::nn {

/// A parameter that starts with one value everywhere; `invalid` on sizes below 1. `layer` is for the text.
Tensor parameter(const char* layer, const Shape& shape, double value, DType dtype);
/// eps; `invalid` unless it is a finite number of at least 0.
double checked_eps(const char* layer, double eps);

/// `weight` or `bias`; undefined: ones or zeros of that shape, of the dtype of x.
Tensor scale_or_ones(const Tensor& weight, const Shape& shape, const Tensor& x);
Tensor shift_or_zeros(const Tensor& bias, const Shape& shape, const Tensor& x);
/// Puts back what is defined to ones and zeros.
void reset_affine(const Tensor& weight, const Tensor& bias);

}  // namespace troupe::nn
