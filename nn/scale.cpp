#include "nn/scale.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"

namespace troupe::nn {

Tensor parameter(const char* layer, const Shape& shape, double value, DType dtype) {
  for (const int64_t n : shape)
    if (n < 1) throw_invalid(fmt::format("[{}] sizes must be at least 1, got {}", layer, shape.str()));
  return Tensor::full(shape, value, dtype).set_requires_grad();
}

double checked_eps(const char* layer, double eps) {
  if (std::isfinite(eps) && eps >= 0) return eps;
  throw_invalid(fmt::format("[{}] eps must be a finite number of at least 0, got {}", layer, eps));
}

}  // namespace troupe::nn
