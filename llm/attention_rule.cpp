#include "llm/attention_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/tensor/creation.h"
#include "ops/ops.h"

namespace troupe::llm {

namespace {

// Bools [time, keys]: what each of the last queries sees.
Tensor seen_keys(int64_t time, int64_t keys, int64_t window, Device device) {
  const TensorOptions whole{int64, device};
  const Tensor q = ops::unsqueeze(arange(keys - time, keys, whole), 1), k = arange(keys, whole);
  const Tensor causal = ops::le(k, q);
  return window ? ops::logical_and(causal, ops::gt(k, ops::sub(q, window))) : causal;
}

Tensor repeated(const Tensor& x, int64_t heads) {
  return x.size(1) == heads ? x : ops::repeat_interleave(x, heads / x.size(1), 1);
}

// Scores that are capped are needed as numbers: no kernel has them.
Tensor capped(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionRule& rule,
              const Tensor& mask) {
  const double scale = rule.scale > 0 ? rule.scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  const Tensor keys = ops::transpose(repeated(k, q.size(1)), 2, 3);
  Tensor scores = ops::mul(ops::matmul(q, keys), scale);
  scores = ops::mul(ops::tanh(ops::div(scores, rule.softcap)), rule.softcap);
  if (mask.defined()) scores = ops::where(mask, scores, -std::numeric_limits<double>::infinity());
  return ops::matmul(ops::softmax(scores, -1, float32).to(q.dtype()), repeated(v, q.size(1)));
}

}  // namespace

Tensor attend(const Tensor& q, const Tensor& all_keys, const Tensor& all_values, const AttentionRule& rule) {
  const int64_t time = q.size(2);
  // What no query sees is left out before anything is computed.
  const int64_t needed = rule.window ? std::min(all_keys.size(2), time + rule.window - 1) : all_keys.size(2);
  const int64_t from = all_keys.size(2) - needed;
  const Tensor k = from ? ops::slice(all_keys, 2, from, all_keys.size(2)) : all_keys;
  const Tensor v = from ? ops::slice(all_values, 2, from, all_values.size(2)) : all_values;
  const bool window = rule.window && needed > rule.window;
  const bool all_seen = time == 1 && !window, causal = needed == time && !window;
  Tensor mask;
  if (!all_seen && (rule.softcap > 0 || !causal))
    mask = seen_keys(time, needed, window ? rule.window : 0, q.device());
  if (rule.softcap > 0) return capped(q, k, v, rule, mask);
  return ops::scaled_dot_product_attention(q, k, v, mask, 0, causal && !all_seen,
                                           rule.scale > 0 ? std::optional(rule.scale) : std::nullopt,
                                           k.size(1) != q.size(1));
}

}  // namespace troupe::llm
