// Activation functions as layers, for Sequential.
#pragma once
#include "nn/module.h"
#include "ops/activation.h"
#include "ops/softmax.h"

namespace troupe::nn {

class ReLU : public Layer {
 public:
  Tensor forward(const Tensor& x) override { return ops::relu(x); }
};

class Tanh : public Layer {
 public:
  Tensor forward(const Tensor& x) override { return ops::tanh(x); }
};

class Sigmoid : public Layer {
 public:
  Tensor forward(const Tensor& x) override { return ops::sigmoid(x); }
};

/// With the exact normal distribution function, or approximate "tanh".
class GELU : public Layer {
 public:
  explicit GELU(std::string approximate = "none");
  Tensor forward(const Tensor& x) override { return ops::gelu(x, approximate_); }
  bool exact() const { return approximate_ == "none"; }

 private:
  std::string approximate_;
};

/// Gives x sigmoid(x) of each element.
class SiLU : public Layer {
 public:
  Tensor forward(const Tensor& x) override { return ops::silu(x); }
};

/// Gives x tanh(softplus(x)) of each element.
class Mish : public Layer {
 public:
  Tensor forward(const Tensor& x) override { return ops::mish(x); }
};

/// Gives x relu6(x + 3) / 6 of each element.
class Hardswish : public Layer {
 public:
  Tensor forward(const Tensor& x) override { return ops::hardswish(x); }
};

/// Gives relu6(x + 3) / 6 of each element.
class Hardsigmoid : public Layer {
 public:
  Tensor forward(const Tensor& x) override { return ops::hardsigmoid(x); }
};

/// Each element, limited to [0, 6].
class ReLU6 : public Layer {
 public:
  Tensor forward(const Tensor& x) override { return ops::relu6(x); }
};

/// 1.0507 times elu of alpha 1.6733.
class SELU : public Layer {
 public:
  Tensor forward(const Tensor& x) override { return ops::selu(x); }
};

/// Gives log(sigmoid(x)) of each element.
class LogSigmoid : public Layer {
 public:
  Tensor forward(const Tensor& x) override { return ops::logsigmoid(x); }
};

/// Gives x / (1 + |x|) of each element.
class Softsign : public Layer {
 public:
  Tensor forward(const Tensor& x) override { return ops::softsign(x); }
};

/// Gives x - tanh(x) of each element.
class Tanhshrink : public Layer {
 public:
  Tensor forward(const Tensor& x) override { return ops::tanhshrink(x); }
};

/// Gives x where it is above 0, else negative_slope x.
class LeakyReLU : public Layer {
 public:
  explicit LeakyReLU(double negative_slope = 0.01) : negative_slope_(negative_slope) {}
  Tensor forward(const Tensor& x) override { return ops::leaky_relu(x, negative_slope_); }

 private:
  double negative_slope_;
};

/// Gives x where it is above 0, else alpha (exp(x) - 1).
class ELU : public Layer {
 public:
  explicit ELU(double alpha = 1.0) : alpha_(alpha) {}
  Tensor forward(const Tensor& x) override { return ops::elu(x, alpha_); }

 private:
  double alpha_;
};

/// Gives x where it is above 0, else alpha (exp(x / alpha) - 1).
class CELU : public Layer {
 public:
  explicit CELU(double alpha = 1.0) : alpha_(alpha) {}
  Tensor forward(const Tensor& x) override { return ops::celu(x, alpha_); }

 private:
  double alpha_;
};

/// Each element, limited to [min_val, max_val].
class Hardtanh : public Layer {
 public:
  explicit Hardtanh(double min_val = -1.0, double max_val = 1.0) : min_val_(min_val), max_val_(max_val) {}
  Tensor forward(const Tensor& x) override { return ops::hardtanh(x, min_val_, max_val_); }

 private:
  double min_val_;
  double max_val_;
};

/// Gives log(1 + exp(beta x)) / beta of each element.
class Softplus : public Layer {
 public:
  explicit Softplus(double beta = 1.0, double threshold = 20.0) : beta_(beta), threshold_(threshold) {}
  Tensor forward(const Tensor& x) override { return ops::softplus(x, beta_, threshold_); }

 private:
  double beta_;
  double threshold_;
};

/// Each element, moved towards 0 by lambd.
class Softshrink : public Layer {
 public:
  explicit Softshrink(double lambd = 0.5) : lambd_(lambd) {}
  Tensor forward(const Tensor& x) override { return ops::softshrink(x, lambd_); }

 private:
  double lambd_;
};

/// 0 in [-lambd, lambd], and the elements elsewhere.
class Hardshrink : public Layer {
 public:
  explicit Hardshrink(double lambd = 0.5) : lambd_(lambd) {}
  Tensor forward(const Tensor& x) override { return ops::hardshrink(x, lambd_); }

 private:
  double lambd_;
};

/// The elements above the threshold, and value in the place of others.
class Threshold : public Layer {
 public:
  explicit Threshold(double threshold, double value) : threshold_(threshold), value_(value) {}
  Tensor forward(const Tensor& x) override { return ops::threshold(x, threshold_, value_); }

 private:
  double threshold_;
  double value_;
};

/// The first half along dim, times the sigmoid of the second one.
class GLU : public Layer {
 public:
  explicit GLU(int64_t dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return ops::glu(x, dim_); }

 private:
  int64_t dim_;
};

/// Gives exp(x) divided by its sum along dim.
class Softmax : public Layer {
 public:
  explicit Softmax(int64_t dim) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return ops::softmax(x, dim_); }

 private:
  int64_t dim_;
};

/// The logarithm of softmax along dim.
class LogSoftmax : public Layer {
 public:
  explicit LogSoftmax(int64_t dim) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return ops::log_softmax(x, dim_); }

 private:
  int64_t dim_;
};

/// Gives softmax of the negative elements along dim.
class Softmin : public Layer {
 public:
  explicit Softmin(int64_t dim) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return ops::softmin(x, dim_); }

 private:
  int64_t dim_;
};

/// Gives x where it is above 0, else weight x: one weight, or one for each channel (dimension 1).
class PReLU : public Layer {
 public:
  /// `invalid` for less than one weight.
  explicit PReLU(int64_t num_parameters = 1, double init = 0.25, DType dtype = float32);
  Tensor forward(const Tensor& x) override { return ops::prelu(x, weight); }
  void members(Members& m) override { m("weight", weight); }
  void reset(Generator& generator) override;

  Tensor weight;  ///< [num_parameters]

 private:
  double init_;
};

}  // namespace troupe::nn
