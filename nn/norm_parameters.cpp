#include "nn/norm_parameters.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "nn/init.h"

namespace troupe::nn {

Tensor parameter(const char* layer, const Shape& shape, double value, DType dtype) {
  for (const int64_t n : shape)
    if (n < 1) throw_invalid(fmt::format("[{}] sizes must be at least 1, got {}", layer, shape.str()));
  return full(shape, value, dtype).requires_grad_();
}

double checked_eps(const char* layer, double eps) {
  if (std::isfinite(eps) && eps >= 0) return eps;
  throw_invalid(fmt::format("[{}] eps must be a finite number of at least 0, got {}", layer, eps));
}

Tensor scale_or_ones(const Tensor& weight, const Shape& shape, const Tensor& x) {
  return weight.defined() ? weight : ones(shape, x.options());
}

Tensor shift_or_zeros(const Tensor& bias, const Shape& shape, const Tensor& x) {
  return bias.defined() ? bias : zeros(shape, x.options());
}

void reset_affine(const Tensor& weight, const Tensor& bias) {
  if (weight.defined()) init::ones_(weight);
  if (bias.defined()) init::zeros_(bias);
}

}  // namespace troupe::nn
