#include "nn/norm_layer.h"

#include <fmt/format.h>

#include "nn/init.h"
#include "nn/scale.h"
#include "ops/norm_layer.h"

namespace troupe::nn {

LayerNorm::LayerNorm(const Shape& shape, const Options& o)
    : weight(parameter("layer_norm", shape, 1, o.dtype)), eps_(checked_eps("layer_norm", o.eps)) {
  if (o.bias) bias = parameter("layer_norm", shape, 0, o.dtype);
}

Tensor LayerNorm::forward(const Tensor& x) { return ops::layer_norm(x, weight, bias, eps_); }

void LayerNorm::reset(Generator&) {
  ones_(weight);
  if (bias.defined()) zeros_(bias);
}

std::string LayerNorm::str() const { return fmt::format("LayerNorm({})", weight.shape().str()); }

RMSNorm::RMSNorm(const Shape& shape, const Options& o)
    : weight(parameter("rms_norm", shape, 1, o.dtype)), eps_(checked_eps("rms_norm", o.eps)) {}

Tensor RMSNorm::forward(const Tensor& x) { return ops::rms_norm(x, weight, eps_); }

void RMSNorm::reset(Generator&) { ones_(weight); }

std::string RMSNorm::str() const { return fmt::format("RMSNorm({})", weight.shape().str()); }

}  // namespace troupe::nn
