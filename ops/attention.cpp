#include "ops/attention.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/arrange.h"
#include "ops/dispatch/cast_call.h"
#include "ops/dispatch/promote.h"
#include "ops/dropout.h"
#include "ops/gradient_rules.h"
#include "ops/index.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/reshape_ops.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

Shape without_width(Shape s) {
  s.erase(s.rank() - 1);
  return s;
}

// Logarithms of halves are float32: rounded to 8 bits, one of 8 would be wrong by 3 %, with all weights that
// are made of it.
Spec logs_spec(Shape shape, DType of) { return {std::move(shape), compute_dtype(of)}; }

// Of all inputs, or of what halves are computed in.
void require_one_dtype(const Call& c) {
  for (const Tensor& t : c.in)
    if (compute_dtype(t.dtype()) != compute_dtype(c.in[0].dtype())) require_same_dtype(c);
}

void require_scale(const Call& c);

void check_attention(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v) {
  require_floating(c, q);
  require_scale(c);
  require_one_dtype(c);
  const Shape &a = q.shape(), &b = k.shape(), &d = v.shape();
  const int r = a.rank();
  bool fits = r >= 2 && b.rank() == r && d.rank() == r && a[r - 1] == b[r - 1] && b[r - 2] == d[r - 2];
  for (int i = 0; fits && i < r - 2; ++i) fits = a[i] == b[i] && a[i] == d[i];
  if (!fits)
    reject(c,
           fmt::format("got q {}, k {}, v {}, expected [..., time, width], [..., keys, width], [..., keys, "
                       "any] with the same leading sizes",
                       a.str(), b.str(), d.str()));
}

// Of q, k and v, which are inputs `first` and the two behind it: the result and the logarithms.
Specs attention_results(const Call& c, size_t first) {
  check_attention(c, c.in[first], c.in[first + 1], c.in[first + 2]);
  Shape out = c.in[first].shape();
  out.back() = c.in[first + 2].shape().back();
  return {{out, c.in[first].dtype()}, logs_spec(without_width(out), c.in[first].dtype())};
}

Specs attention_spec(const Call& c) { return attention_results(c, 0); }

// Inputs: gradients of both results, then q, k, v, result, logarithms.
Specs attention_grad_spec(const Call& c) {
  const Specs results = attention_results(c, 2);
  for (const size_t first : {0, 5})
    for (size_t i = 0; i < results.size(); ++i) require_shape(c, first + i, results[i].shape);
  return {{c.in[2].shape(), c.in[2].dtype()},
          {c.in[3].shape(), c.in[3].dtype()},
          {c.in[4].shape(), c.in[4].dtype()}};
}

int64_t head_width(const Call& c, const Shape& qkv) {
  const int64_t heads = c.attrs.integer("heads");
  if (heads < 1) reject(c, fmt::format("heads must be at least 1, got {}", heads));
  if (qkv.rank() != 3 || qkv[2] % 3 || qkv[2] / 3 % heads)
    reject(c, fmt::format("qkv must be [batch, time, 3 * {} heads * width], got {}", heads, qkv.str()));
  return qkv[2] / 3 / heads;
}

Specs self_attention_results(const Call& c, size_t input) {
  const Tensor& qkv = c.in[input];
  require_floating(c, qkv);
  require_scale(c);
  head_width(c, qkv.shape());
  const int64_t batch = qkv.shape()[0], time = qkv.shape()[1];
  return {{{batch, time, qkv.shape()[2] / 3}, qkv.dtype()},
          logs_spec({batch, c.attrs.integer("heads"), time}, qkv.dtype())};
}

Specs self_attention_spec(const Call& c) { return self_attention_results(c, 0); }

// Inputs: gradients of both results, then qkv, result, logarithms.
Specs self_attention_grad_spec(const Call& c) {
  require_one_dtype(c);
  const Specs results = self_attention_results(c, 2);
  for (const size_t first : {0, 3})
    for (size_t i = 0; i < results.size(); ++i) require_shape(c, first + i, results[i].shape);
  return {{c.in[2].shape(), c.in[2].dtype()}};
}

double scale_of(const Tensor& q) {
  const int64_t width = q.shape().back();
  return width ? 1 / std::sqrt(static_cast<double>(width)) : 1;
}
// The kernels look for the largest score before they scale it.
void require_scale(const Call& c) {
  if (const double scale = c.attrs.number("scale"); !(scale >= 0))
    reject(c, fmt::format("scale must be above 0, or 0 for 1 / sqrt(width), got {}", scale));
}

// The scores of all pairs, in memory.
Tensor scores_of(const Tensor& q, const Tensor& k, double scale, bool causal) {
  const Tensor scores = mul(matmul(q, transpose(k, -2, -1)), scale);
  if (!causal) return scores;
  return where(tril(ones({q.size(-2), k.size(-2)}, {boolean, q.device()})), scores, -kInfinite);
}

// A query that sees nothing gives zeros.
Tensor weights_of(const Tensor& scores) {
  if (scores.size(-1) == 0) return scores;  // no key, whatever the mask
  const Tensor nothing = eq(amax(scores.detach(), {-1}, true), -kInfinite);
  return where(nothing, 0.0, softmax(where(nothing, 0.0, scores), -1));
}

// Gradients of q, k and v made of operators that have gradients themselves: all scores exist here.
Tensors recorded_gradient(const Tensor& g, const Tensor& g_log, const Tensor& q, const Tensor& k,
                          const Tensor& v, const Attrs& attrs) {
  const double scale = attention_scale(attrs, q.shape().back());
  const bool causal = attrs.flag("causal");
  const Tensor p = softmax(scores_of(q, k, scale, causal), -1), dp = matmul(g, transpose(v, -2, -1));
  const Tensor delta = sub(sum(mul(dp, p), {-1}, true), unsqueeze(g_log, -1));
  const Tensor ds = mul(mul(p, sub(dp, delta)), scale);
  return {matmul(ds, k), matmul(transpose(ds, -2, -1), q), matmul(transpose(p, -2, -1), g)};
}

Tensors attention_recorded(const Backward& b) {
  return recorded_gradient(b.grads[0], b.grads[1], b.in[0], b.in[1], b.in[2], b.attrs);
}

Tensors attention_gradient(const Backward& b) {
  if (grad_enabled()) return rounded_once(b, attention_recorded);
  const Tensor inputs[] = {b.grads[0], b.grads[1], b.in[0], b.in[1], b.in[2], b.out[0], b.out[1]};
  return apply(kAttentionGrad, inputs, b.attrs);
}

// [batch, time, n * heads * width] as [n, batch, heads, time, width].
Tensor parted(const Tensor& x, int64_t n, int64_t heads) {
  const std::vector<int64_t> shape{x.size(0), x.size(1), n, heads, x.size(2) / n / heads};
  return permute(reshape(x, shape), {2, 0, 3, 1, 4});
}

Tensors self_attention_recorded(const Backward& b) {
  const int64_t heads = b.attrs.integer("heads");
  const Tensor all = parted(b.in[0], 3, heads), g = squeeze(parted(b.grads[0], 1, heads), 0);
  const auto part = [&](int64_t i) { return squeeze(slice(all, 0, i, i + 1), 0); };
  const Tensors d = recorded_gradient(g, b.grads[1], part(0), part(1), part(2), b.attrs);
  return {reshape(permute(stack(d, 0), {1, 3, 0, 2, 4}), to_list(b.shape(0)))};
}

Tensors self_attention_gradient(const Backward& b) {
  if (grad_enabled()) return rounded_once(b, self_attention_recorded);
  const Tensor inputs[] = {b.grads[0], b.grads[1], b.in[0], b.out[0], b.out[1]};
  return apply(kSelfAttentionGrad, inputs, b.attrs);
}

const Attrs kCausal{{"causal", false}, {"scale", 0.0}};
const Attrs kHeads{{"heads", 1}, {"causal", false}, {"scale", 0.0}};

Sample triple(const Shape& q, const Shape& k, const Shape& v, bool causal) {
  return {{sample(q), sample(k, -2, 2, 1), sample(v, -2, 2, 2)}, {{"causal", causal}}};
}

std::vector<Sample> attention_samples() {
  return {triple({2, 2, 5, 4}, {2, 2, 5, 4}, {2, 2, 5, 4}, false),
          triple({2, 5, 3}, {2, 5, 3}, {2, 5, 2}, true),
          triple({2, 3}, {4, 3}, {4, 3}, true),
          triple({4, 3}, {2, 3}, {2, 3}, true),
          triple({2, 3, 1}, {2, 1, 1}, {2, 1, 1}, false),
          triple({0, 3, 4}, {0, 3, 4}, {0, 3, 4}, true),
          triple({2, 0, 4}, {2, 3, 4}, {2, 3, 4}, false),
          {triple({2, 3, 4}, {2, 5, 4}, {2, 5, 4}, true).inputs, {{"causal", true}, {"scale", 0.3}}}};
}

std::vector<Sample> self_attention_samples() {
  return {{{sample({2, 3, 12})}, {{"heads", 2}, {"causal", true}}},
          {{sample({1, 4, 9})}, {{"heads", 1}}},
          {{sample({2, 0, 6})}, {{"heads", 2}}},
          {{sample({1, 4, 12})}, {{"heads", 2}, {"causal", true}, {"scale", 0.7}}}};
}

}  // namespace

const Op kAttention{.name = "attention",
                    .inputs = "query key value",
                    .text = "scaled_dot_product_attention with the logarithms of its sums.",
                    .internal = true,
                    .attrs = kCausal,
                    .shape = attention_spec,
                    .saves_inputs = 0b111,
                    .saves_outputs = 0b11,
                    .gradient = attention_gradient,
                    .samples = attention_samples};

const Op kAttentionGrad{
    .name = "attention_grad",
    .inputs = "grad grad_sums query key value result sums",
    .text = "Gradients of attention.",
    .internal = true,
    .attrs = kCausal,
    .shape = attention_grad_spec,
    .samples = []() -> std::vector<Sample> {
      std::vector<Sample> all;
      for (Sample s : attention_samples()) {
        const Tensors out = apply(kAttention, s.inputs, s.attrs);
        s.inputs.insert(s.inputs.begin(), {sample(out[0].shape()), sample(out[1].shape())});
        s.inputs.insert(s.inputs.end(), out.begin(), out.end());
        all.push_back(std::move(s));
      }
      return all;
    }};

const Op kScaledDotProductAttention{
    .name = "scaled_dot_product_attention",
    .inputs = "query key value",
    .text = "softmax(query key^T / sqrt(width)) value; causal: query i sees keys 0 to i.",
    .internal = true,
    .attrs = kCausal,
    .compose = [](const Call& c) -> Tensors { return {apply(kAttention, c.in, c.attrs)[0]}; },
    .takes_half = true,
    .samples = attention_samples};

const Op kSelfAttention{.name = "self_attention",
                        .inputs = "qkv",
                        .text = "Attention in heads; qkv holds queries, keys and values.",
                        .attrs = kHeads,
                        .shape = self_attention_spec,
                        .saves_inputs = 1,
                        .saves_outputs = 0b11,
                        .gradient = self_attention_gradient,
                        .samples = self_attention_samples};

const Op kSelfAttentionGrad{
    .name = "self_attention_grad",
    .inputs = "grad grad_sums qkv result sums",
    .text = "Gradient of self_attention.",
    .internal = true,
    .attrs = kHeads,
    .shape = self_attention_grad_spec,
    .samples = []() -> std::vector<Sample> {
      std::vector<Sample> all;
      for (const Sample& s : self_attention_samples()) {
        const Tensors out = apply(kSelfAttention, s.inputs, s.attrs);
        all.push_back(
            {{sample(out[0].shape()), sample(out[1].shape()), s.inputs[0], out[0], out[1]}, s.attrs});
      }
      return all;
    }};

namespace {

// Leading dimensions broadcast, as in PyTorch.
std::array<Tensor, 3> in_one_batch(const Tensor& q, const Tensor& k, const Tensor& v) {
  std::array<Tensor, 3> all{q, k, v};
  const auto batch = [](const Tensor& t) {
    return Shape(std::span(t.shape().begin(), static_cast<size_t>(t.dim() - 2)));
  };
  for (const Tensor& t : all)
    if (!t.defined() || t.dim() < 2) return all;  // the checks say which one
  const Shape b = batch(q), bk = batch(k), bv = batch(v);
  if (b == bk && b == bv) return all;
  constexpr const char* kName = "scaled_dot_product_attention";
  const Shape together = broadcast(broadcast(b, bk, kName), bv, kName);
  for (Tensor& t : all) {
    std::vector<int64_t> wide = to_list(together);
    wide.insert(wide.end(), {t.size(-2), t.size(-1)});
    t = expand(t, wide);
  }
  return all;
}

// With all scores in memory.
Tensor attention_of(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, double dropout_p,
                    bool causal, double scale) {
  Tensor scores = scores_of(q, k, scale, causal);
  if (mask.defined()) {
    const Tensor wide = expand(mask, to_list(scores.shape()));
    scores =
        wide.dtype() == boolean ? where(wide, scores, -kInfinite) : add(scores, to(wide, scores.dtype()));
  }
  const Tensor p = weights_of(scores);
  return matmul(dropout_p == 0 ? p : dropout(p, dropout_p), v);
}

constexpr const char* kSdpa = "scaled_dot_product_attention";

// Heads [.., heads, rows, any] as [.., groups, heads / groups, rows, any].
Tensor in_groups(const Tensor& x, int64_t groups) { return unflatten(x, -3, {groups, x.size(-3) / groups}); }

// Attention in which each head of k and v stands for several of q: one more dimension, over which k and v are
// repeated without a copy.
Tensor grouped_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                         double dropout_p, bool causal, std::optional<double> scale) {
  for (const Tensor* t : {&q, &k, &v})
    if (!t->defined() || t->dim() < 3)
      throw_invalid(
          fmt::format("[{}] enable_gqa needs heads: [.., heads, time, width], got {}", kSdpa, t->summary()));
  const int64_t heads = q.size(-3), of_k = k.size(-3), of_v = v.size(-3);
  if (of_k < 1 || of_v < 1 || heads % of_k || heads % of_v)
    throw_invalid(
        fmt::format("[{}] enable_gqa: the heads of q, {}, are no multiple of those of k, {}, and v, {}",
                    kSdpa, heads, of_k, of_v));
  if (of_k != of_v)  // each repeated by itself
    return scaled_dot_product_attention(q, repeat_interleave(k, heads / of_k, -3),
                                        repeat_interleave(v, heads / of_v, -3), mask, dropout_p, causal,
                                        scale);
  Tensor m = mask;
  if (m.defined() && m.dim() > 2) m = m.size(-3) == 1 ? unsqueeze(m, -3) : in_groups(m, of_k);
  const Tensor y = scaled_dot_product_attention(in_groups(q, of_k), unsqueeze(k, -3), unsqueeze(v, -3), m,
                                                dropout_p, causal, scale);
  return flatten(y, -4, -3);
}

}  // namespace

double attention_scale(const Attrs& attrs, int64_t width) {
  const double scale = attrs.number("scale");
  return scale > 0 ? scale : width ? 1 / std::sqrt(static_cast<double>(width)) : 1;
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, bool enable_gqa) {
  if (const auto y = under_autocast(
          "scaled_dot_product_attention", {&query, &key, &value, &attn_mask}, [&](const auto& in) {
            return scaled_dot_product_attention(in[0], in[1], in[2], in[3], dropout_p, is_causal, scale,
                                                enable_gqa);
          }))
    return *y;
  const bool masked = attn_mask.defined();
  if (masked && attn_mask.dtype() != boolean && !attn_mask.is_floating_point())
    throw_invalid(fmt::format("[{}] attn_mask must be bool or floating, got {}", kSdpa, attn_mask.summary()));
  if (enable_gqa &&
      !(query.defined() && key.defined() && value.defined() && query.dim() > 2 && key.dim() > 2 &&
        value.dim() > 2 && query.size(-3) == key.size(-3) && query.size(-3) == value.size(-3)))
    return grouped_attention(query, key, value, attn_mask, dropout_p, is_causal, scale);
  const auto [q, k, v] = in_one_batch(query, key, value);
  if (!masked && dropout_p == 0 && (!scale || *scale > 0))
    return apply1(kScaledDotProductAttention, {q, k, v},
                  {{"causal", is_causal}, {"scale", scale.value_or(0.0)}});
  if (masked && is_causal)
    throw_invalid(
        fmt::format("[{}] got attn_mask and is_causal: leave one out, or give attn_mask.tril()", kSdpa));
  const Tensor inputs[] = {q, k, v};
  for (const Tensor& x : inputs)
    if (!x.defined()) return apply1(kScaledDotProductAttention, {q, k, v});  // says which one
  check_attention({kScaledDotProductAttention, inputs, kCausal}, q, k, v);
  return rounded_once(q.dtype(), [&](DType wide) {
    return attention_of(to(q, wide), to(k, wide), to(v, wide), attn_mask, dropout_p, is_causal,
                        scale.value_or(scale_of(q)));
  });
}
Tensor attention_weights(const Tensor& q, const Tensor& k, bool is_causal) {
  if (const auto y = under_autocast("attention_weights", {&q, &k}, [&](const auto& in) {
        return attention_weights(in[0], in[1], is_causal);
      }))
    return *y;
  const Tensor inputs[] = {q, k, k};
  check_attention({kScaledDotProductAttention, inputs, kCausal}, q, k, k);
  return rounded_once(q.dtype(), [&](DType wide) {
    return weights_of(scores_of(to(q, wide), to(k, wide), scale_of(q), is_causal));
  });
}
Tensor self_attention(const Tensor& qkv, int64_t heads, bool causal, std::optional<double> scale) {
  return apply1(kSelfAttention, {qkv},
                {{"heads", heads}, {"causal", causal}, {"scale", scale.value_or(0.0)}});
}

}  // namespace troupe::ops
