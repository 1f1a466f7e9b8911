// Attention in several heads.
#pragma once
#include "nn/dropout.h"
#include "nn/linear.h"

namespace troupe::nn {

struct MultiheadAttentionOptions {
  double dropout = 0;  ///< of the weights, while training
  bool bias = true;
  bool causal = false;  ///< query i sees keys 0 to i
  DType dtype = float32;
};

/// What queries do not see, as in PyTorch's modules: of bools what is true (the reverse of
/// ops::scaled_dot_product_attention), and numbers that are added to the scores. A query that sees nothing
/// gets zeros of values.
struct AttentionMasks {
  Tensor attn_mask = {};         ///< [time, keys], or [batch * heads, time, keys]
  Tensor key_padding_mask = {};  ///< [batch, keys]
  bool empty() const { return !attn_mask.defined() && !key_padding_mask.defined(); }
};

/// Queries look at keys and take a mix of the values, in several heads: x [batch, time, width]. Parameters
/// are named as PyTorch's. The projection of the inputs starts by Glorot's rule, biases at 0, out_proj as
/// Linear.
class MultiheadAttention : public Layer {
 public:
  using Options = MultiheadAttentionOptions;
  /// Initial values as Linear's. `invalid` unless heads divide width, and as Dropout.
  MultiheadAttention(int64_t width, int64_t heads, const Options& options = {});

  /// Of x to itself.
  Tensor forward(const Tensor& x) override;
  /// query [batch, time, width], key and value [batch, keys, width] -> [batch, time, width].
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                    const AttentionMasks& masks = {});
  using Layer::operator();
  void members(Members& m) override;
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor in_proj_weight;  ///< [3 * width, width]: of queries, keys and values
  Tensor in_proj_bias;    ///< [3 * width]; undefined without
  Linear out_proj;

 private:
  friend class TransformerEncoderLayer;
  Tensor mixed(const Tensor& x);  // what goes into out_proj, of x to itself
  Tensor mixed(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionMasks& masks);

  int64_t heads_;
  bool causal_;
  Dropout dropout_;
};

}  // namespace troupe::nn
