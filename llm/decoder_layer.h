// One layer of a decoder: attention and the feed-forward layer, each behind a norm.
#pragma once
#include <optional>

#include "actors/cell/task.h"
#include "llm/attention_rule.h"
#include "llm/decoder_norm.h"
#include "llm/decoder_options.h"
#include "llm/projection.h"

namespace troupe::llm {

/// Keeper of the keys and values of earlier tokens: see PagedCache. One rank's.
class Past {
 public:
  virtual ~Past() = default;
  /// Keeps k and v [1, key heads, tokens, width], and gives what the queries q [1, heads, tokens, width] see.
  virtual Tensor attend(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v,
                        const AttentionRule& rule) = 0;
};

/// What all layers of one pass use.
struct DecoderPass {
  ops::RotaryTable global,
      local;             ///< of the positions, [time, head_dim / 2] each; undefined without rotation
  Past* past = nullptr;  ///< null: the tokens before are those of the same row
};

/// Attention of which each rank of a group has some heads of keys and values, and the queries of these. A
/// rank may have none.
class DecoderAttention final : public nn::Module {
 public:
  DecoderAttention(const Group& group, const DecoderOptions& options, int64_t layer);

  /// Takes x [batch, time, hidden_size], whole, and gives a summand.
  tp::Part operator()(const Tensor& x, const DecoderPass& pass);
  void members(nn::Members& m) override;
  std::string str() const override;

  ColumnProjection q_proj, k_proj, v_proj;
  RowProjection o_proj;
  std::optional<DecoderNorm> q_norm, k_norm;  ///< of each head, [head_dim]

 private:
  Tensor heads_of(const Tensor& projected, const DecoderNorm* norm) const;

  Group group_;
  int64_t layer_, head_dim_;
  AttentionRule rule_;
};

/// Gives down(act(gate(x)) * up(x)), or down(act(up(x))), cut between the two.
class FeedForward final : public nn::Module {
 public:
  FeedForward(const Group& group, const DecoderOptions& options);

  /// Takes x [batch, time, hidden_size], whole, and gives a summand.
  tp::Part operator()(const Tensor& x);
  void members(nn::Members& m) override;

  std::optional<ColumnProjection> gate_proj;
  ColumnProjection up_proj;
  RowProjection down_proj;

 private:
  Group group_;
  std::string act_;
};

/// Gives x + self_attn(norm(x)), then y + mlp(norm(y)); with post_norms also what is added is normalized. Its
/// halves end where the ranks sum, as those of tp::TransformerEncoderLayer.
class DecoderLayer : public nn::Module {
 public:
  DecoderLayer(const Group& group, const DecoderOptions& options, int64_t number);

  Task<Tensor> operator()(Tensor x, DecoderPass pass);
  tp::Part attend(const Tensor& x, const DecoderPass& pass) { return self_attn(input_layernorm(x), pass); }
  Tensor attended(const Tensor& x, const Tensor& sum);
  tp::Part feed(const Tensor& x);
  Tensor fed(const Tensor& x, const Tensor& sum);
  void members(nn::Members& m) override;

  DecoderAttention self_attn;
  FeedForward mlp;
  DecoderNorm input_layernorm;
  /// The norm before the feed-forward layer; with post_norms, of what attention gives.
  DecoderNorm post_attention_layernorm;
  std::optional<DecoderNorm> pre_feedforward_layernorm, post_feedforward_layernorm;  ///< with post_norms
};

}  // namespace troupe::llm
