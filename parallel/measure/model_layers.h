// The layers of a model's specification, and what stands for the loss behind them.
#pragma once
#include "core/value/value.h"
#include "nn/module.h"

namespace troupe::internal::parallel {

/// The layers of a sequential, one by one; any other is one layer. `invalid` for none.
ValueList layers_of(const Value& model);

double bytes_of(const Tensors& tensors);

/// Cross-entropies of what a model gives, with some word as the target of each position. The loss of a
/// program is not known.
class SomeLoss final : public nn::Layer {
 public:
  /// For those of numbers a row, which take next to nothing, it stays out.
  static bool has(const Tensor& y) { return is_floating(y.dtype()) && y.dim() >= 2 && y.size(-1) >= 2; }
  Tensor forward(const Tensor& x) override;
};

}  // namespace troupe::internal::parallel
