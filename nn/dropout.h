// Dropout: noise while training.
#pragma once
#include "nn/module.h"

namespace troupe::nn {

/// While training, each element is zero with probability p, and the others are divided by 1 - p. Else x
/// itself. Masks come from the layer's own generator: the same seed gives the same masks in the same order of
/// calls.
class Dropout final : public Layer {
 public:
  /// `invalid` unless 0 <= p < 1.
  explicit Dropout(double p = 0.5, uint64_t seed = 0);

  Tensor forward(const Tensor& x) override;
  /// Whether forward() gives x itself now.
  bool idle() const { return !training() || p_ == 0; }
  void reset(Generator& generator) override { generator_ = Generator(generator.next()); }

 private:
  double p_;
  Generator generator_;
};

}  // namespace troupe::nn
