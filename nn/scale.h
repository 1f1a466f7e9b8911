// What normalization layers have in common: scales, shifts and eps, checked.
#pragma once
#include "core/tensor.h"

namespace troupe::nn {

/// A parameter that starts with one value everywhere; `invalid` on sizes below 1. `layer` is for the text.
Tensor parameter(const char* layer, const Shape& shape, double value, DType dtype);
/// eps; `invalid` unless it is a finite number of at least 0.
double checked_eps(const char* layer, double eps);

}  // namespace troupe::nn
