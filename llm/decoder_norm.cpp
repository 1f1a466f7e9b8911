#include "llm/decoder_norm.h"

#include <fmt/format.h>

#include "core/tensor/creation.h"
#include "nn/init.h"
#include "ops/ops.h"

namespace troupe::llm {

DecoderNorm::DecoderNorm(int64_t width, const DecoderOptions& o)
    : weight(empty({width}, o.dtype).requires_grad_()),
      eps_(o.norm_eps),
      rms_(o.norm == "rms"),
      adds_one_(o.norm_adds_one) {
  if (!rms_) bias = empty({width}, o.dtype).requires_grad_();
  start();
}

// The sum of 1 and a half's weight would be rounded: it is made in float32, as the published models do.
Tensor DecoderNorm::with(const Tensor& x, const Tensor& weight_of) const {
  const IntList width{x.size(-1)};
  if (!rms_) return ops::layer_norm(x, width, weight_of, bias, eps_);
  if (!adds_one_) return ops::rms_norm(x, width, weight_of, eps_);
  const bool half = is_half(x.dtype());
  const Tensor wide = half ? x.to(float32) : x;
  const Tensor scale = ops::add(half ? weight_of.to(float32) : weight_of, 1.0);
  const Tensor y = ops::rms_norm(wide, width, scale, eps_);
  return half ? y.to(x.dtype()) : y;
}

void DecoderNorm::reset(Generator&) {
  nn::init::constant_(weight, adds_one_ ? 0 : 1);
  if (bias.defined()) nn::init::zeros_(bias);
}

std::string DecoderNorm::str() const {
  return fmt::format("{}({})", rms_ ? "RMSNorm" : "LayerNorm", weight.size(0));
}

}  // namespace troupe::llm
