// The layer that transformers are made of.
#pragma once
#include <string>

#include "nn/attention.h"
#include "nn/norm_layer.h"

namespace troupe::nn {

struct TransformerEncoderLayerOptions {
  int64_t dim_feedforward = 2048;   ///< width between the two linear layers
  double dropout = 0.1;             ///< of attention's weights, between the linear layers, of what is added
  std::string activation = "relu";  ///< or "gelu", the exact one
  double layer_norm_eps = 1e-5;
  bool norm_first = false;  ///< normalized before each half (Xiong et al. 2020), not after it is added
  bool bias = true;
  bool causal = false;  ///< position i sees 0 to i
  DType dtype = float32;
};

/// norm1(x + self_attn(x)), then norm2(y + linear2(activation(linear1(y)))): x [batch, time, width]. With
/// norm_first x + self_attn(norm1(x)), then y + linear2(activation(linear1(norm2(y)))). Parameters, initial
/// values and defaults are PyTorch's. A block of a GPT:
///
///   TransformerEncoderLayer(64, 4, {.dim_feedforward = 256, .dropout = 0, .activation = "gelu",
///                                   .norm_first = true, .causal = true})
class TransformerEncoderLayer : public Layer {
 public:
  using Options = TransformerEncoderLayerOptions;
  /// `invalid` unless heads divide width, on another activation, and as the layers inside.
  TransformerEncoderLayer(int64_t width, int64_t heads, const Options& options = {});

  Tensor forward(const Tensor& x) override;
  /// Does so with masks of what positions do not see.
  Tensor operator()(const Tensor& x, const AttentionMasks& masks);
  using Layer::operator();
  void members(Members& m) override;
  std::string str() const override;

  MultiheadAttention self_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2;
  Dropout dropout, dropout1, dropout2;  ///< between the linear layers; of what each half adds

 private:
  Tensor attend(const Tensor& x, const Tensor& to, const AttentionMasks& masks);
  Tensor run(const Tensor& x, const AttentionMasks& masks);
  Tensor feed(const Tensor& x, const Tensor& to);

  bool gelu_, norm_first_;
};

}  // namespace troupe::nn
