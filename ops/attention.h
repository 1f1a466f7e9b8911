// Softmax attention that never holds the matrix of all scores.
#pragma once
#include <optional>

#include "ops/dispatch/op.h"

namespace troupe::ops {

/// softmax(q k^T / sqrt(width)) v with q [..., time, width], k [..., keys, width], v [..., keys, any],
/// usually [batch, heads, time, width]; leading dimensions broadcast. is_causal: query i sees keys 0 to i.
/// Strided inputs are read where they are as long as the width lies together. Memory grows with time, not
/// with its square: scores exist in tiles only (Dao et al. 2022), the backward pass computes them anew.
/// attn_mask [..., time, keys], broadcast: of bools those that a query sees, else numbers added to the
/// scores; a query that sees nothing gets zeros. dropout_p: of the weights, as dropout(). With either, and
/// with a scale that is not above 0, all scores are in memory. `invalid` with attn_mask and is_causal.
/// scale: in the place of 1 / sqrt(width). enable_gqa: k and v may have fewer heads (the third dimension
/// from the end), each for as many that follow each other in q; nothing is copied for that.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& attn_mask = {}, double dropout_p = 0,
                                    bool is_causal = false, std::optional<double> scale = {},
                                    bool enable_gqa = false);

/// What the scores are multiplied by: attribute "scale", where 0 stands for 1 / sqrt(width).
double attention_scale(const Attrs& attrs, int64_t width);

/// The weights by which it mixes the values, [..., time, keys], all in memory.
Tensor attention_weights(const Tensor& q, const Tensor& k, bool is_causal = false);

/// The same for queries, keys and values side by side, as one linear layer makes them: qkv [batch, time,
/// 3 * heads * width] holds q, k and v of head 0, 1, ... in that order. Result [batch, time, heads * width].
/// Nothing is copied to part the heads or to bring them together again, forward or backward.
Tensor self_attention(const Tensor& qkv, int64_t heads, bool causal = false,
                      std::optional<double> scale = {});

/// attention also gives the logarithm of each query's sum [..., time], float32 of halves, from which the
/// backward pass restores the weights; self_attention [batch, heads, time].
extern const Op kScaledDotProductAttention, kAttention, kAttentionGrad, kSelfAttention, kSelfAttentionGrad;

}  // namespace troupe::ops
