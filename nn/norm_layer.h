// Normalization of each row by its own values. Weights start at 1, biases at 0; reset() puts them back.
#pragma once
#include <optional>

#include "nn/module.h"

namespace troupe::nn {

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;  ///< with weight, and bias unless told otherwise
  bool bias = true;
  DType dtype = float32;
};

/// Over the trailing dimensions `shape`: x [.., shape...] (ops::layer_norm).
class LayerNorm : public Layer {
 public:
  using Options = LayerNormOptions;
  /// `invalid` on sizes below 1, and on an eps that is not a finite number of at least 0.
  explicit LayerNorm(const Shape& shape, const Options& options = {});
  explicit LayerNorm(int64_t width, const Options& options = {}) : LayerNorm(Shape{width}, options) {}

  Tensor forward(const Tensor& x) override;
  void members(Members& m) override { m("weight", weight), m("bias", bias); }
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor weight, bias;  ///< [shape...]; undefined without

 private:
  Shape shape_;
  double eps_;
};

struct RMSNormOptions {
  std::optional<double> eps = {};  ///< empty: the machine epsilon of the input's dtype
  bool elementwise_affine = true;  ///< with weight
  DType dtype = float32;
};

/// Over the trailing dimensions by their root mean square (ops::rms_norm).
class RMSNorm : public Layer {
 public:
  using Options = RMSNormOptions;
  /// `invalid` as LayerNorm.
  explicit RMSNorm(const Shape& shape, const Options& options = {});
  explicit RMSNorm(int64_t width, const Options& options = {}) : RMSNorm(Shape{width}, options) {}

  Tensor forward(const Tensor& x) override;
  void members(Members& m) override { m("weight", weight); }
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor weight;  ///< [shape...]; undefined without

 private:
  Shape shape_;
  std::optional<double> eps_;
};

}  // namespace troupe::nn
