#include "nn/norm_layer.h"

#include <fmt/format.h>

#include "nn/init.h"
#include "nn/norm_parameters.h"
#include "ops/layer_norm.h"

namespace troupe::nn {
namespace {

// The distance from 1 to the next number.
double machine_epsilon(DType dtype) {
  switch (dtype) {
    case float64:
      return 0x1p-52;
    case float16:
      return 0x1p-10;
    case bfloat16:
      return 0x1p-7;
    default:
      return 0x1p-23;
  }
}

}  // namespace

LayerNorm::LayerNorm(const Shape& shape, const Options& o)
    : weight(parameter("layer_norm", shape, 1, o.dtype)),
      shape_(shape),
      eps_(checked_eps("layer_norm", o.eps)) {
  if (!o.elementwise_affine)
    weight = {};
  else if (o.bias)
    bias = parameter("layer_norm", shape, 0, o.dtype);
}

Tensor LayerNorm::forward(const Tensor& x) {
  return ops::layer_norm(x, scale_or_ones(weight, shape_, x), bias, eps_);
}

void LayerNorm::reset(Generator&) { reset_affine(weight, bias); }

std::string LayerNorm::str() const { return fmt::format("LayerNorm({})", shape_.str()); }

RMSNorm::RMSNorm(const Shape& shape, const Options& o)
    : weight(parameter("rms_norm", shape, 1, o.dtype)), shape_(shape), eps_(o.eps) {
  if (eps_) checked_eps("rms_norm", *eps_);
  if (!o.elementwise_affine) weight = {};
}

Tensor RMSNorm::forward(const Tensor& x) {
  return ops::rms_norm(x, scale_or_ones(weight, shape_, x), eps_.value_or(machine_epsilon(x.dtype())));
}

void RMSNorm::reset(Generator&) { reset_affine(weight, {}); }

std::string RMSNorm::str() const { return fmt::format("RMSNorm({})", shape_.str()); }

}  // namespace troupe::nn
