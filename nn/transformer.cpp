#include "nn/transformer.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/matmul.h"

namespace troupe::nn {
namespace {

using Options = TransformerEncoderLayerOptions;

bool is_gelu(const std::string& activation) {
  if (activation == "relu" || activation == "gelu") return activation == "gelu";
  throw_invalid("[transformer_encoder_layer] the activation is \"" + activation +
                "\", expected \"relu\" or \"gelu\"");
}

LayerNormOptions norm_options(const Options& o) {
  return {.eps = o.layer_norm_eps, .bias = o.bias, .dtype = o.dtype};
}

// Gives residual + dropout(layer(x)), in one pass where nobody looks.
Tensor added(const Tensor& residual, Linear& layer, Dropout& dropout, const Tensor& x) {
  if (!dropout.idle() || dropout.observed() || layer.observed()) return ops::add(residual, dropout(layer(x)));
  return ops::linear_add(x, layer.weight, layer.bias, residual);
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(int64_t width, int64_t heads, const Options& o)
    : self_attn(width, heads, {.dropout = o.dropout, .bias = o.bias, .causal = o.causal, .dtype = o.dtype}),
      linear1(width, o.dim_feedforward, o.bias, o.dtype),
      linear2(o.dim_feedforward, width, o.bias, o.dtype),
      norm1(width, norm_options(o)),
      norm2(width, norm_options(o)),
      dropout(o.dropout),
      dropout1(o.dropout),
      dropout2(o.dropout),
      gelu_(is_gelu(o.activation)),
      norm_first_(o.norm_first) {}

Tensor TransformerEncoderLayer::forward(const Tensor& x) { return run(x, {}); }

Tensor TransformerEncoderLayer::operator()(const Tensor& x, const AttentionMasks& masks) {
  return seen(run(x, masks));
}

Tensor TransformerEncoderLayer::run(const Tensor& x, const AttentionMasks& masks) {
  if (norm_first_) {
    const Tensor y = attend(norm1(x), x, masks);
    return feed(norm2(y), y);
  }
  const Tensor y = norm1(attend(x, x, masks));
  return norm2(feed(y, y));
}

Tensor TransformerEncoderLayer::attend(const Tensor& x, const Tensor& to, const AttentionMasks& masks) {
  if (!masks.empty()) return ops::add(to, dropout1(self_attn(x, x, x, masks)));
  if (self_attn.observed()) return ops::add(to, dropout1(self_attn(x)));
  return added(to, self_attn.out_proj, dropout1, self_attn.mixed(x));
}

Tensor TransformerEncoderLayer::feed(const Tensor& x, const Tensor& to) {
  Tensor wide;
  if (linear1.observed())
    wide = gelu_ ? ops::gelu(linear1(x)) : ops::relu(linear1(x));
  else
    wide = gelu_ ? ops::linear_gelu(x, linear1.weight, linear1.bias)
                 : ops::linear_relu(x, linear1.weight, linear1.bias);
  return added(to, linear2, dropout2, dropout(wide));
}

void TransformerEncoderLayer::members(Members& m) {
  m("self_attn", self_attn), m("linear1", linear1), m("dropout", dropout), m("linear2", linear2);
  m("norm1", norm1), m("norm2", norm2), m("dropout1", dropout1), m("dropout2", dropout2);
}

std::string TransformerEncoderLayer::str() const {
  return fmt::format("TransformerEncoderLayer({}, {} heads)", linear1.weight.size(1), self_attn.heads_);
}

}  // namespace troupe::nn
