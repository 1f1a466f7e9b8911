// Rows of a table by their numbers.
#pragma once
#include "nn/module.h"

namespace troupe::nn {

/// ids int64 [..] -> [.., width]. The table starts standard normal.
class Embedding final : public Layer {
 public:
  /// Initial values from Generator(0); `invalid` if a size is below 1.
  Embedding(int64_t count, int64_t width, DType dtype = float32);

  Tensor forward(const Tensor& ids) override;
  void members(Members& m) override { m("weight", weight); }
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor weight;  ///< [count, width]
};

}  // namespace troupe::nn
