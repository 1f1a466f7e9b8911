// Dropout: noise while training.
#pragma once
#include <memory>

#include "nn/module.h"

namespace troupe::nn {

/// While training, each element is zero with probability p, and the others are divided by 1 - p. Else x
/// itself. Masks come from the layer's own generator, so they follow from its seed and the order of its
/// calls. A copy shares the generator.
class Dropout : public Layer {
 public:
  /// The generator's seed is drawn from current_stream() (core/base/seed_stream.h): no two layers have the
  /// same masks, and a program that runs again has the same ones. `invalid` unless 0 <= p < 1.
  explicit Dropout(double p = 0.5);
  /// The generator is Generator(seed).
  Dropout(double p, uint64_t seed);

  Tensor forward(const Tensor& x) override;
  /// Whether forward() gives x itself now.
  bool idle() const { return !training() || p_ == 0; }
  void members(Members& m) override { m.generator("generator", *generator_); }
  void reset(Generator& generator) override { *generator_ = Generator(generator.next()); }
  std::string str() const override;

 private:
  double p_;
  std::shared_ptr<Generator> generator_;
};

}  // namespace troupe::nn
