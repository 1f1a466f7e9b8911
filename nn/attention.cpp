#include "nn/attention.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "nn/init.h"
#include "nn/mixed_heads.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/attention.h"
#include "ops/dispatch/promote.h"
#include "ops/logic.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace troupe::nn {
namespace {

int64_t checked_heads(int64_t width, int64_t heads) {
  if (width >= 1 && heads >= 1 && width % heads == 0) return heads;
  throw_invalid(fmt::format("[multihead_attention] {} heads do not divide a width of {}", heads, width));
}

void require(const char* what, const Tensor& x, int64_t width) {
  if (x.defined() && x.dim() == 3 && x.size(2) == width) return;
  throw_invalid(
      fmt::format("[multihead_attention] {} is {}, expected [batch, time, {}]", what, x.summary(), width));
}

// [batch, time, heads * any] -> [batch, heads, time, any].
Tensor parted(const Tensor& x, int64_t heads) {
  return ops::transpose(ops::reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads}), 1, 2);
}

// A mask as numbers that are added to scores.
Tensor as_numbers(const Tensor& mask, DType t) {
  if (mask.dtype() != boolean) return ops::to(mask, t);
  return ops::where(mask, ops::wrapped(-HUGE_VAL, t, mask.device()), ops::wrapped(0, t, mask.device()));
}

// Both masks and the causal one, added up; of q and k [batch, heads, time, any].
Tensor together(const AttentionMasks& masks, const Tensor& q, const Tensor& k, bool causal) {
  const int64_t batch = q.size(0), heads = q.size(1), time = q.size(2), keys = k.size(2);
  const DType t = compute_dtype(q.dtype());
  Tensor all;
  const auto take = [&](const char* what, const Tensor& mask, const Tensor& lies) {
    if (mask.dtype() != boolean && !is_floating(mask.dtype()))
      throw_invalid(
          fmt::format("[multihead_attention] {} must be bool or floating, got {}", what, mask.summary()));
    const Tensor numbers = as_numbers(lies, t);
    all = all.defined() ? ops::add(all, numbers) : numbers;
  };
  if (const Tensor& m = masks.attn_mask; m.defined()) {
    const bool each = m.shape() == Shape{batch * heads, time, keys};
    if (!each && m.shape() != Shape{time, keys})
      throw_invalid(fmt::format("[multihead_attention] attn_mask is {}, expected [{}, {}] or [{}, {}, {}]",
                                m.summary(), time, keys, batch * heads, time, keys));
    take("attn_mask", m, each ? ops::reshape(m, {batch, heads, time, keys}) : m);
  }
  if (const Tensor& m = masks.key_padding_mask; m.defined()) {
    if (m.shape() != Shape{batch, keys})
      throw_invalid(fmt::format("[multihead_attention] key_padding_mask is {}, expected [{}, {}]",
                                m.summary(), batch, keys));
    take("key_padding_mask", m, ops::reshape(m, {batch, 1, 1, keys}));
  }
  if (causal) {
    const Tensor later = ops::logical_not(ops::tril(ones({time, keys}, {boolean, q.device()})));
    all = ops::add(all, as_numbers(later, t));
  }
  return all;
}

// Does as mix(), with numbers that are added to the scores.
Tensor masked_mix(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, Dropout& dropout) {
  const auto thinned = [&](DType t) {
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
    const Tensor scores = ops::mul(ops::matmul(ops::to(q, t), ops::transpose(ops::to(k, t), 2, 3)), scale);
    const Tensor sum = ops::add(scores, mask),
                 nothing = ops::eq(ops::amax(sum.detach(), -1, true), -HUGE_VAL);
    const Tensor weights = ops::where(nothing, 0.0, ops::softmax(ops::where(nothing, 0.0, sum), -1));
    return ops::matmul(dropout(weights), ops::to(v, t));
  };
  const Tensor mix = dropout.idle() ? ops::scaled_dot_product_attention(q, k, v, mask)
                                    : ops::rounded_once(v.dtype(), thinned);
  return ops::reshape(ops::transpose(mix, 1, 2), {q.size(0), q.size(2), q.size(1) * q.size(3)});
}

// q [batch, heads, time, any], k and v [batch, heads, keys, any] -> [batch, time, heads * any].
Tensor mix(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, Dropout& dropout) {
  const auto thinned = [&](DType t) {  // of halves in float32
    return ops::matmul(dropout(ops::attention_weights(ops::to(q, t), ops::to(k, t), causal)), ops::to(v, t));
  };
  const Tensor mix = dropout.idle() ? ops::scaled_dot_product_attention(q, k, v, {}, 0, causal)
                                    : ops::rounded_once(v.dtype(), thinned);
  return ops::reshape(ops::transpose(mix, 1, 2), {q.size(0), q.size(2), q.size(1) * q.size(3)});
}

}  // namespace

Tensor mixed_heads(const Tensor& projected, int64_t heads, bool causal, Dropout& dropout) {
  if (dropout.idle()) return ops::self_attention(projected, heads, causal);
  const int64_t width = projected.size(2) / 3;
  const auto part = [&](int64_t i) {
    return parted(ops::slice(projected, 2, width * i, width * (i + 1)), heads);
  };
  return mix(part(0), part(1), part(2), causal, dropout);
}

MultiheadAttention::MultiheadAttention(int64_t width, int64_t heads, const Options& o)
    : out_proj(width, width, o.bias, o.dtype),
      heads_(checked_heads(width, heads)),
      causal_(o.causal),
      dropout_(o.dropout) {
  in_proj_weight = empty({3 * width, width}, o.dtype).requires_grad_();
  if (o.bias) in_proj_bias = empty({3 * width}, o.dtype).requires_grad_();
  start();
}

Tensor MultiheadAttention::forward(const Tensor& x) { return out_proj(mixed(x)); }

Tensor MultiheadAttention::mixed(const Tensor& x) {
  const int64_t width = out_proj.weight.size(0);
  require("the input", x, width);
  return mixed_heads(ops::linear(x, in_proj_weight, in_proj_bias), heads_, causal_, dropout_);
}

Tensor MultiheadAttention::mixed(const Tensor& query, const Tensor& key, const Tensor& value,
                                 const AttentionMasks& masks) {
  const int64_t width = out_proj.weight.size(0);
  int64_t part = 0;
  const auto project = [&](const char* what, const Tensor& x) {  // [batch, heads, time, width / heads]
    require(what, x, width);
    const int64_t from = width * part++;
    const Tensor weight = ops::slice(in_proj_weight, 0, from, from + width);
    const Tensor bias = in_proj_bias.defined() ? ops::slice(in_proj_bias, 0, from, from + width) : Tensor();
    return parted(ops::linear(x, weight, bias), heads_);
  };
  const Tensor q = project("the query", query), k = project("the key", key), v = project("the value", value);
  if (masks.empty()) return mix(q, k, v, causal_, dropout_);
  return masked_mix(q, k, v, together(masks, q, k, causal_), dropout_);
}

Tensor MultiheadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const AttentionMasks& masks) {
  return seen(out_proj(mixed(query, key, value, masks)));
}

void MultiheadAttention::members(Members& m) {
  m("in_proj_weight", in_proj_weight), m("in_proj_bias", in_proj_bias), m("out_proj", out_proj);
  m("dropout", dropout_);
}

void MultiheadAttention::reset(Generator& generator) {
  init::xavier_uniform_(in_proj_weight, 1, generator);
  out_proj.reset(generator);
  if (in_proj_bias.defined()) init::zeros_(in_proj_bias), init::zeros_(out_proj.bias);
  dropout_.reset(generator);
}

std::string MultiheadAttention::str() const {
  return fmt::format("MultiheadAttention({}, {} heads)", out_proj.weight.size(0), heads_);
}

}  // namespace troupe::nn
