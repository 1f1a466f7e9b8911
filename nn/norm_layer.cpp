#include "nn/norm_layer.h"

#include <fmt/format.h>

#include "nn/init.h"
#include "nn/norm_parameters.h"
#include "ops/layer_norm.h"

namespace troupe::nn {

LayerNorm::LayerNorm(const Shape& shape, const Options& o)
    : weight(parameter("layer_norm", shape, 1, o.dtype)),
      shape_(shape),
      eps_(checked_eps("layer_norm", o.eps)) {
  if (!o.elementwise_affine)
    weight = {};
  else if (o.bias)
    bias = parameter("layer_norm", shape, 0, o.dtype);
}

Tensor LayerNorm::forward(const Tensor& x) { return ops::layer_norm(x, shape_, weight, bias, eps_); }

void LayerNorm::reset(Generator&) { reset_affine(weight, bias); }

std::string LayerNorm::str() const { return fmt::format("LayerNorm({})", shape_.str()); }

RMSNorm::RMSNorm(const Shape& shape, const Options& o)
    : weight(parameter("rms_norm", shape, 1, o.dtype)), shape_(shape), eps_(o.eps) {
  if (eps_) checked_eps("rms_norm", *eps_);
  if (!o.elementwise_affine) weight = {};
}

Tensor RMSNorm::forward(const Tensor& x) { return ops::rms_norm(x, shape_, weight, eps_); }

void RMSNorm::reset(Generator&) { reset_affine(weight, {}); }

std::string RMSNorm::str() const { return fmt::format("RMSNorm({})", shape_.str()); }

}  // namespace troupe::nn
