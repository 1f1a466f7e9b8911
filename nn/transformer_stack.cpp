#include "nn/transformer_stack.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"

namespace troupe::nn {
namespace {

using LayerOptions = TransformerEncoderLayerOptions;

LayerNormOptions norm_of(const LayerOptions& o) {
  return {.eps = o.layer_norm_eps, .bias = o.bias, .dtype = o.dtype};
}

MultiheadAttentionOptions attention_of(const LayerOptions& o, bool causal) {
  return {.dropout = o.dropout, .bias = o.bias, .causal = causal, .dtype = o.dtype};
}

bool takes_gelu(const std::string& activation) {
  if (activation == "relu" || activation == "gelu") return activation == "gelu";
  throw_invalid("[transformer_decoder_layer] the activation is \"" + activation +
                "\", expected \"relu\" or \"gelu\"");
}

int64_t checked_layers(const char* what, int64_t layers) {
  constexpr int64_t kMost = 10000;  // a number from afar must not fill the memory
  if (layers >= 1 && layers <= kMost) return layers;
  throw_invalid(fmt::format("[{}] needs 1 to {} layers, got {}", what, kMost, layers));
}

template <class Stack>
void list_members(Stack& stack, Members& m) {
  for (size_t i = 0; i < stack.layers.size(); ++i) m(fmt::format("layers.{}", i), *stack.layers[i]);
  if (stack.norm) m("norm", *stack.norm);
}

}  // namespace

TransformerEncoder::TransformerEncoder(int64_t width, int64_t heads, int64_t count, const Options& o,
                                       bool final_norm) {
  for (int64_t i = 0; i < checked_layers("transformer_encoder", count); ++i)
    layers.push_back(std::make_unique<TransformerEncoderLayer>(width, heads, o));
  if (final_norm) norm = std::make_unique<LayerNorm>(width, norm_of(o));
}

Tensor TransformerEncoder::operator()(const Tensor& x, const AttentionMasks& masks) {
  Tensor y = x;
  for (const auto& layer : layers) y = masks.empty() ? (*layer)(y) : (*layer)(y, masks);
  return seen(norm ? (*norm)(y) : y);
}

std::string TransformerEncoder::str() const {
  return fmt::format("TransformerEncoder({} layers)", layers.size());
}

void TransformerEncoder::members(Members& m) { list_members(*this, m); }

TransformerDecoderLayer::TransformerDecoderLayer(int64_t width, int64_t heads, const Options& o)
    : self_attn(width, heads, attention_of(o, o.causal)),
      multihead_attn(width, heads, attention_of(o, false)),
      linear1(width, o.dim_feedforward, o.bias, o.dtype),
      linear2(o.dim_feedforward, width, o.bias, o.dtype),
      norm1(width, norm_of(o)),
      norm2(width, norm_of(o)),
      norm3(width, norm_of(o)),
      dropout(o.dropout),
      dropout1(o.dropout),
      dropout2(o.dropout),
      dropout3(o.dropout),
      gelu_(takes_gelu(o.activation)),
      norm_first_(o.norm_first) {}

Tensor TransformerDecoderLayer::feed(const Tensor& x) {
  const Tensor wide = linear1(x);
  return dropout3(linear2(dropout(gelu_ ? ops::gelu(wide) : ops::relu(wide))));
}

Tensor TransformerDecoderLayer::operator()(const Tensor& x, const Tensor& memory, const DecoderMasks& masks) {
  const auto own = [&](const Tensor& t) { return dropout1(self_attn(t, t, t, masks.target)); };
  const auto of_memory = [&](const Tensor& t) {
    return dropout2(multihead_attn(t, memory, memory, masks.memory));
  };
  if (norm_first_) {
    const Tensor y = ops::add(x, own(norm1(x))), z = ops::add(y, of_memory(norm2(y)));
    return seen(ops::add(z, feed(norm3(z))));
  }
  const Tensor y = norm1(ops::add(x, own(x))), z = norm2(ops::add(y, of_memory(y)));
  return seen(norm3(ops::add(z, feed(z))));
}

void TransformerDecoderLayer::members(Members& m) {
  m("self_attn", self_attn), m("multihead_attn", multihead_attn);
  m("linear1", linear1), m("dropout", dropout), m("linear2", linear2);
  m("norm1", norm1), m("norm2", norm2), m("norm3", norm3);
  m("dropout1", dropout1), m("dropout2", dropout2), m("dropout3", dropout3);
}

TransformerDecoder::TransformerDecoder(int64_t width, int64_t heads, int64_t count, const Options& o,
                                       bool final_norm) {
  for (int64_t i = 0; i < checked_layers("transformer_decoder", count); ++i)
    layers.push_back(std::make_unique<TransformerDecoderLayer>(width, heads, o));
  if (final_norm) norm = std::make_unique<LayerNorm>(width, norm_of(o));
}

Tensor TransformerDecoder::operator()(const Tensor& x, const Tensor& memory, const DecoderMasks& masks) {
  Tensor y = x;
  for (const auto& layer : layers) y = (*layer)(y, memory, masks);
  return seen(norm ? (*norm)(y) : y);
}

void TransformerDecoder::members(Members& m) { list_members(*this, m); }

}  // namespace troupe::nn
