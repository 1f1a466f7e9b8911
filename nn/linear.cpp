// Linear: parameters, their initial values, and one operator.
#include "nn/linear.h"

#include <cmath>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "nn/init.h"
#include "ops/matmul.h"

namespace troupe::nn {

void Linear::make(int64_t in, int64_t out, bool with_bias, DType dtype) {
  if (in < 1 || out < 1)
    throw_invalid("[linear] sizes must be at least 1, got in " + std::to_string(in) + ", out " +
                  std::to_string(out));
  weight = empty({out, in}, dtype).requires_grad_();
  if (with_bias) bias = empty({out}, dtype).requires_grad_();
}

Linear::Linear(int64_t in, int64_t out, AnyGenerator generator, bool with_bias, DType dtype) {
  make(in, out, with_bias, dtype);
  start(generator);
}

Linear::Linear(int64_t in, int64_t out, bool with_bias, DType dtype) {
  make(in, out, with_bias, dtype);
  start();
}

Tensor Linear::forward(const Tensor& x) { return ops::linear(x, weight, bias); }

std::string Linear::str() const {
  return "Linear(" + std::to_string(weight.size(1)) + ", " + std::to_string(weight.size(0)) + ")";
}

void Linear::reset(Generator& generator) {
  const double bound = 1 / std::sqrt(static_cast<double>(weight.size(1)));
  init::uniform_(weight, -bound, bound, generator);
  if (bias.defined()) init::uniform_(bias, -bound, bound, generator);
}

}  // namespace troupe::nn
