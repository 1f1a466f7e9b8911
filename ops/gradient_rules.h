// What gradient rules and samples of several families share.
#pragma once
#include "ops/dispatch/check.h"

namespace troupe::ops {

/// g, summed over the dimensions that broadcasting added or stretched, in `shape`.
Tensor sum_to(const Tensor& g, const Shape& shape);
/// rule(b) of float32 in the place of halves, whose gradients are then rounded: for a rule of several steps,
/// of an operator that has a kernel for halves.
Tensors rounded_once(const Backward& b, Tensors rule(const Backward&));
/// The same as a rule.
template <Tensors rule(const Backward&)>
Tensors rounding_once(const Backward& b) {
  return rounded_once(b, rule);
}
/// x with size 1 at the reduced dimensions: undoes keepdim false.
Tensor restore_dims(const Tensor& x, const Shape& full, const std::array<bool, kMaxDims>& reduced);
/// g, the gradient of a reduction's result, repeated over what was reduced: a view of shape `full`.
Tensor spread_over(const Tensor& g, const Shape& full, const std::array<bool, kMaxDims>& reduced);
/// Repeatable numbers in [low, high) for samples, float64.
Tensor sample(const Shape& shape, double low = -2, double high = 2, uint64_t seed = 0);
/// The attributes of what reduces some dimensions, or all.
inline Attrs dims_and_keepdim() { return {{"dim", std::vector<int64_t>{}}, {"keepdim", false}}; }
/// Two results by their names.
inline ValuesAndIndices values_and_indices(Tensors out) { return {std::move(out[0]), std::move(out[1])}; }

}  // namespace troupe::ops
