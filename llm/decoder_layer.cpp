#include "llm/decoder_layer.h"

#include <fmt/format.h>

#include "ops/ops.h"

namespace troupe::llm {

namespace {

size_t ranks(const Group& group) { return std::max<size_t>(group.size(), 1); }

// Columns of the ranks, each of which has whole groups of a head of keys and its queries.
std::vector<int64_t> columns(const Group& group, const DecoderOptions& o, int64_t per_key_head) {
  auto sizes = tp::even_sizes(o.key_value_heads(), ranks(group));
  for (int64_t& s : sizes) s *= per_key_head;
  return sizes;
}

int64_t query_columns(const DecoderOptions& o) {
  return o.num_attention_heads / o.key_value_heads() * o.head_width();
}

ProjectionOptions made(const DecoderOptions& o, bool bias, std::vector<int64_t> sizes = {}) {
  return {.bias = bias, .dtype = o.dtype, .deviation = o.initializer_range, .sizes = std::move(sizes)};
}

Tensor activated(const std::string& act, const Tensor& x) {
  if (act == "silu") return ops::silu(x);
  if (act == "relu") return ops::relu(x);
  return ops::gelu(x, act == "gelu_tanh" ? "tanh" : "none");
}

}  // namespace

DecoderAttention::DecoderAttention(const Group& group, const DecoderOptions& o, int64_t layer)
    : q_proj(group, o.hidden_size, o.num_attention_heads * o.head_width(),
             made(o, o.attention_bias, columns(group, o, query_columns(o)))),
      k_proj(group, o.hidden_size, o.key_value_heads() * o.head_width(),
             made(o, o.attention_bias, columns(group, o, o.head_width()))),
      v_proj(group, o.hidden_size, o.key_value_heads() * o.head_width(),
             made(o, o.attention_bias, columns(group, o, o.head_width()))),
      o_proj(group, o.num_attention_heads * o.head_width(), o.hidden_size,
             made(o, o.output_bias, columns(group, o, query_columns(o)))),
      group_(group),
      layer_(layer),
      head_dim_(o.head_width()),
      rule_{.scale = o.query_scale, .softcap = o.attention_softcap, .window = o.window_of(layer)} {
  if (o.qk_norm) q_norm.emplace(head_dim_, o), k_norm.emplace(head_dim_, o);
}

// [batch, time, some heads * width] -> [batch, heads, time, width]. Each rank normalizes its own heads, so
// that the gradient of the norm's weight is a summand on each.
Tensor DecoderAttention::heads_of(const Tensor& projected, const DecoderNorm* norm) const {
  Tensor x = ops::reshape(projected,
                          {projected.size(0), projected.size(1), projected.size(2) / head_dim_, head_dim_});
  if (norm) x = norm->with(x, tp::enter(norm->weight, group_, group_.size() > 1 ? str() : ""));
  return ops::transpose(x, 1, 2);
}

tp::Part DecoderAttention::operator()(const Tensor& x, const DecoderPass& pass) {
  const auto norm = [](std::optional<DecoderNorm>& n) { return n ? &*n : nullptr; };
  const Tensor own = tp::enter(x, group_, group_.size() > 1 ? str() : "");
  Tensor q = heads_of(q_proj(own), norm(q_norm)), k = heads_of(k_proj(own), norm(k_norm));
  const Tensor v = heads_of(v_proj(own), nullptr);
  const ops::RotaryTable& table = rule_.window && pass.local.cos.defined() ? pass.local : pass.global;
  if (table.cos.defined()) q = ops::rotary(q, table.cos, table.sin), k = ops::rotary(k, table.cos, table.sin);
  Tensor mixed;
  if (!q.numel())
    mixed = ops::add(ops::add(q, k), v);  // of a rank without heads, whose backward pass reaches all of them
  else
    mixed = pass.past ? pass.past->attend(layer_, q, k, v, rule_) : llm::attend(q, k, v, rule_);
  return o_proj(ops::reshape(ops::transpose(mixed, 1, 2), {x.size(0), x.size(1), q.size(1) * head_dim_}));
}

void DecoderAttention::members(nn::Members& m) {
  m("q_proj", q_proj), m("k_proj", k_proj), m("v_proj", v_proj), m("o_proj", o_proj);
  if (q_norm) m("q_norm", *q_norm), m("k_norm", *k_norm);
}

std::string DecoderAttention::str() const { return fmt::format("DecoderAttention({})", layer_); }

FeedForward::FeedForward(const Group& group, const DecoderOptions& o)
    : up_proj(group, o.hidden_size, o.intermediate_size, made(o, o.mlp_bias)),
      down_proj(group, o.intermediate_size, o.hidden_size, made(o, o.mlp_bias)),
      group_(group),
      act_(o.hidden_act) {
  if (o.gated) gate_proj.emplace(group, o.hidden_size, o.intermediate_size, made(o, o.mlp_bias));
}

tp::Part FeedForward::operator()(const Tensor& x) {
  const Tensor own = tp::enter(x, group_, group_.size() > 1 ? "FeedForward" : "");
  const Tensor up = up_proj(own);
  return down_proj(gate_proj ? ops::mul(activated(act_, (*gate_proj)(own)), up) : activated(act_, up));
}

void FeedForward::members(nn::Members& m) {
  if (gate_proj) m("gate_proj", *gate_proj);
  m("up_proj", up_proj), m("down_proj", down_proj);
}

DecoderLayer::DecoderLayer(const Group& group, const DecoderOptions& o, int64_t number)
    : self_attn(group, o, number),
      mlp(group, o),
      input_layernorm(o.hidden_size, o),
      post_attention_layernorm(o.hidden_size, o) {
  if (o.post_norms)
    pre_feedforward_layernorm.emplace(o.hidden_size, o), post_feedforward_layernorm.emplace(o.hidden_size, o);
}

Task<Tensor> DecoderLayer::operator()(Tensor x, DecoderPass pass) {
  const tp::Part attending = attend(x, pass);
  Tensor sum = co_await attending;
  x = attended(x, sum);
  const tp::Part feeding = feed(x);
  sum = co_await feeding;
  co_return fed(x, sum);
}

Tensor DecoderLayer::attended(const Tensor& x, const Tensor& sum) {
  return ops::add(x, pre_feedforward_layernorm ? post_attention_layernorm(sum) : sum);
}

tp::Part DecoderLayer::feed(const Tensor& x) {
  return mlp(pre_feedforward_layernorm ? (*pre_feedforward_layernorm)(x) : post_attention_layernorm(x));
}

Tensor DecoderLayer::fed(const Tensor& x, const Tensor& sum) {
  return ops::add(x, post_feedforward_layernorm ? (*post_feedforward_layernorm)(sum) : sum);
}

void DecoderLayer::members(nn::Members& m) {
  m("self_attn", self_attn), m("mlp", mlp);
  m("input_layernorm", input_layernorm), m("post_attention_layernorm", post_attention_layernorm);
  if (!pre_feedforward_layernorm) return;
  m("pre_feedforward_layernorm", *pre_feedforward_layernorm);
  m("post_feedforward_layernorm", *post_feedforward_layernorm);
}

}  // namespace troupe::llm
