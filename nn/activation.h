// Activation functions as layers, for Sequential.
#pragma once
#include "nn/module.h"
#include "ops/activation.h"

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

/// With the exact normal distribution function.
class GELU : public Layer {
 public:
  Tensor forward(const Tensor& x) override { return ops::gelu(x); }
};

}  // namespace troupe::nn
