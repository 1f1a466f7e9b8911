// Attention, and the block that transformers are made of.
#pragma once
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/norm_layer.h"

namespace troupe::nn {

struct MultiheadAttentionOptions {
  bool bias = true;
  bool causal = false;  ///< query i sees keys 0 to i
  DType dtype = float32;
};

/// Queries look at keys and take a mix of the values, in several heads: x [batch, time, width]. Parameters
/// are named as PyTorch's. The projection of the inputs starts by Glorot's rule, biases at 0, out_proj as
/// Linear.
class MultiheadAttention final : public Layer {
 public:
  using Options = MultiheadAttentionOptions;
  /// Initial values as Linear's. `invalid` unless heads divide width.
  MultiheadAttention(int64_t width, int64_t heads, const Options& options = {});

  /// Of x to itself.
  Tensor forward(const Tensor& x) override;
  /// query [batch, time, width], key and value [batch, keys, width] -> [batch, time, width].
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value);
  using Layer::operator();
  void members(Members& m) override;
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor in_proj_weight;  ///< [3 * width, width]: of queries, keys and values
  Tensor in_proj_bias;    ///< [3 * width]; undefined without
  Linear out_proj;

 private:
  int64_t heads_;
  bool causal_;
};

struct TransformerBlockOptions {
  bool causal = true;
  int64_t expansion = 4;  ///< hidden width of the second half, as a multiple
  double dropout = 0;     ///< of what each half adds, while training
  DType dtype = float32;
};

/// x + proj(attention(qkv(norm1(x)))), then x + down(gelu(up(norm2(x)))): x [batch, time, width]. Normalized
/// before each half (Xiong et al. 2020), with the exact GELU.
class TransformerBlock final : public Layer {
 public:
  using Options = TransformerBlockOptions;
  /// Initial values as Linear's. `invalid` unless heads divide width.
  TransformerBlock(int64_t width, int64_t heads, const Options& options = {});

  Tensor forward(const Tensor& x) override;
  void members(Members& m) override;
  std::string str() const override;

  LayerNorm norm1;
  Linear qkv, proj;  ///< to queries, keys and values side by side; and back
  LayerNorm norm2;
  Linear up, down;
  Dropout dropout;

 private:
  int64_t heads_;
  bool causal_;
};

}  // namespace troupe::nn
