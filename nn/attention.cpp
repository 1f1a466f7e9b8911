#include "nn/attention.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "nn/init.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/attention.h"
#include "ops/matmul.h"
#include "ops/view.h"

namespace troupe::nn {
namespace {

int64_t checked_heads(const char* layer, int64_t width, int64_t heads) {
  if (width >= 1 && heads >= 1 && width % heads == 0) return heads;
  throw_invalid(fmt::format("[{}] {} heads do not divide a width of {}", layer, heads, width));
}

void require(const char* layer, const char* what, const Tensor& x, int64_t width) {
  if (x.defined() && x.dim() == 3 && x.size(2) == width) return;
  throw_invalid(fmt::format("[{}] {} is {}, expected [batch, time, {}]", layer, what, x.summary(), width));
}

}  // namespace

MultiheadAttention::MultiheadAttention(int64_t width, int64_t heads, const Options& o)
    : out_proj(width, width, o.bias, o.dtype),
      heads_(checked_heads("multihead_attention", width, heads)),
      causal_(o.causal) {
  in_proj_weight = empty({3 * width, width}, o.dtype).requires_grad_();
  if (o.bias) in_proj_bias = empty({3 * width}, o.dtype).requires_grad_();
  Generator start = next_generator();
  reset(start);
}

Tensor MultiheadAttention::forward(const Tensor& x) {
  require("multihead_attention", "the input", x, out_proj.weight.size(0));
  return out_proj(ops::self_attention(ops::linear(x, in_proj_weight, in_proj_bias), heads_, causal_));
}

Tensor MultiheadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value) {
  const int64_t width = out_proj.weight.size(0);
  int64_t part = 0;
  const auto project = [&](const char* what, const Tensor& x) {  // [batch, heads, time, width / heads]
    require("multihead_attention", what, x, width);
    const int64_t from = width * part++;
    const Tensor weight = ops::slice(in_proj_weight, 0, from, from + width);
    const Tensor bias = in_proj_bias.defined() ? ops::slice(in_proj_bias, 0, from, from + width) : Tensor();
    const Tensor y = ops::linear(x, weight, bias);
    return ops::transpose(ops::reshape(y, {x.size(0), x.size(1), heads_, width / heads_}), 1, 2);
  };
  const Tensor q = project("the query", query), k = project("the key", key), v = project("the value", value);
  const Tensor mixed = ops::transpose(ops::scaled_dot_product_attention(q, k, v, {}, 0, causal_), 1, 2);
  return seen(out_proj(ops::reshape(mixed, {query.size(0), query.size(1), width})));
}

void MultiheadAttention::members(Members& m) {
  m("in_proj_weight", in_proj_weight), m("in_proj_bias", in_proj_bias), m("out_proj", out_proj);
}

void MultiheadAttention::reset(Generator& generator) {
  init::xavier_uniform_(in_proj_weight, 1, generator);
  out_proj.reset(generator);
  if (in_proj_bias.defined()) init::zeros_(in_proj_bias), init::zeros_(out_proj.bias);
}

std::string MultiheadAttention::str() const {
  return fmt::format("MultiheadAttention({}, {} heads)", out_proj.weight.size(0), heads_);
}

TransformerBlock::TransformerBlock(int64_t width, int64_t heads, const Options& o)
    : norm1(width, {.dtype = o.dtype}),
      qkv(width, 3 * width, true, o.dtype),
      proj(width, width, true, o.dtype),
      norm2(width, {.dtype = o.dtype}),
      up(width, o.expansion * width, true, o.dtype),
      down(o.expansion * width, width, true, o.dtype),
      dropout(o.dropout),
      heads_(checked_heads("transformer_block", width, heads)),
      causal_(o.causal) {}

Tensor TransformerBlock::forward(const Tensor& x) {
  require("transformer_block", "the input", x, proj.weight.size(0));
  const auto add_to = [&](const Tensor& residual, Linear& layer, const Tensor& y) {
    if (!dropout.idle() || dropout.observed() || layer.observed())
      return ops::add(residual, dropout(layer(y)));
    return ops::linear_add(y, layer.weight, layer.bias, residual);
  };
  const Tensor half = add_to(x, proj, ops::self_attention(qkv(norm1(x)), heads_, causal_));
  const Tensor normal = norm2(half);
  const Tensor wide = up.observed() ? ops::gelu(up(normal)) : ops::linear_gelu(normal, up.weight, up.bias);
  return add_to(half, down, wide);
}

void TransformerBlock::members(Members& m) {
  m("norm1", norm1), m("qkv", qkv), m("proj", proj), m("norm2", norm2), m("up", up), m("down", down);
  m("dropout", dropout);
}

std::string TransformerBlock::str() const {
  return fmt::format("TransformerBlock({}, {} heads)", proj.weight.size(0), heads_);
}

}  // namespace troupe::nn
