#include "ops/gradient_rules.h"

#include "core/base/generator.h"
#include "core/tensor/creation.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace troupe::ops {

Tensor sum_to(const Tensor& g, const Shape& shape) {
  if (g.shape() == shape) return g;
  const int shift = g.dim() - shape.rank();
  std::vector<int64_t> dims;
  for (int i = 0; i < g.dim(); ++i)
    if (i < shift || (shape[i - shift] == 1 && g.shape()[i] != 1)) dims.push_back(i);
  const Tensor summed = dims.empty() ? g : sum(g, dims, true);
  return shift ? reshape(summed, to_list(shape)) : summed;
}

Tensors rounded_once(const Backward& b, Tensors rule(const Backward&)) {
  bool any = false;
  for (const Spec& s : b.in_specs) any |= is_half(s.dtype);
  for (const Tensor& g : b.grads) any |= g.defined() && is_half(g.dtype());
  if (!any) return rule(b);
  const auto wide = [](std::span<const Tensor> all) {
    Tensors out(all.begin(), all.end());
    for (Tensor& t : out)
      if (t.defined() && is_half(t.dtype())) t = to(t, float32);
    return out;
  };
  const Tensors in = wide(b.in), out = wide(b.out), grads = wide(b.grads);
  Tensors all = rule({b.op, b.attrs, in, out, grads, b.in_specs, b.next, b.wanted});
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].defined()) all[i] = to(all[i], b.in_specs[i].dtype);
  return all;
}

Tensor restore_dims(const Tensor& x, const Shape& full, const std::array<bool, kMaxDims>& reduced) {
  const Shape kept = keep_reduced(full, reduced);
  return x.shape() == kept ? x : reshape(x, to_list(kept));
}

Tensor spread_over(const Tensor& g, const Shape& full, const std::array<bool, kMaxDims>& reduced) {
  if (grad_enabled() && g.requires_grad())
    return expand(g.dim() == 0 ? g : restore_dims(g, full, reduced), to_list(full));
  // Not recorded: the same view, without two operators.
  Shape strides = full;
  const bool kept = g.dim() == full.rank();
  for (int i = 0, at = 0; i < full.rank(); ++i) {
    strides[i] = reduced[i] ? 0 : g.strides()[at];
    if (kept || !reduced[i]) ++at;
  }
  return g.alias(full, strides, g.storage_offset());
}

Tensor sample(const Shape& shape, double low, double high, uint64_t seed) {
  Tensor t = empty(shape, float64);
  Generator g(seed + 17);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<double>()[i] = g.uniform(low, high);
  return t;
}

}  // namespace troupe::ops
