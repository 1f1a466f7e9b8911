// Stacks of transformer layers: encoders with masks, and decoders that also look at what an encoder gave.
#pragma once
#include <memory>
#include <vector>

#include "nn/transformer.h"

namespace troupe::nn {

/// Layers one after the other, and a norm behind them if there is one; x [batch, time, width]. Parameters are
/// named as PyTorch's: layers.0.self_attn.in_proj_weight, ..., norm.weight.
class TransformerEncoder : public Module {
 public:
  using Options = TransformerEncoderLayerOptions;
  /// `invalid` for less than one layer, and as the layers. final_norm: a LayerNorm at the end.
  TransformerEncoder(int64_t width, int64_t heads, int64_t layers, const Options& options = {},
                     bool final_norm = false);

  Tensor operator()(const Tensor& x, const AttentionMasks& masks = {});
  void members(Members& m) override;
  std::string str() const override;

  std::vector<std::unique_ptr<TransformerEncoderLayer>> layers;
  std::unique_ptr<LayerNorm> norm;  ///< null without
};

/// What a decoder's layers may not see: of the sequence itself, and of the memory.
struct DecoderMasks {
  AttentionMasks target = {}, memory = {};
};

/// Gives norm1(x + self_attn(x)), norm2(y + multihead_attn(y, memory)), norm3(z +
/// linear2(activation(linear1(z)))), or with norm_first each half normalized before: x [batch, time, width],
/// memory [batch, any, width]. Parameters, initial values and defaults are PyTorch's; causal is of x alone.
class TransformerDecoderLayer : public Module {
 public:
  using Options = TransformerEncoderLayerOptions;
  /// `invalid` as TransformerEncoderLayer.
  TransformerDecoderLayer(int64_t width, int64_t heads, const Options& options = {});

  Tensor operator()(const Tensor& x, const Tensor& memory, const DecoderMasks& masks = {});
  void members(Members& m) override;

  MultiheadAttention self_attn, multihead_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2, norm3;
  Dropout dropout, dropout1, dropout2, dropout3;

 private:
  Tensor feed(const Tensor& x);

  bool gelu_, norm_first_;
};

/// Decoder layers one after the other, as TransformerEncoder.
class TransformerDecoder : public Module {
 public:
  using Options = TransformerEncoderLayerOptions;
  TransformerDecoder(int64_t width, int64_t heads, int64_t layers, const Options& options = {},
                     bool final_norm = false);

  Tensor operator()(const Tensor& x, const Tensor& memory, const DecoderMasks& masks = {});
  void members(Members& m) override;

  std::vector<std::unique_ptr<TransformerDecoderLayer>> layers;
  std::unique_ptr<LayerNorm> norm;  ///< null without
};

}  // namespace troupe::nn
