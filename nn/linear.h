// The fully connected layer.
#pragma once
#include "nn/module.h"

namespace troupe::nn {

/// y = x weightᵀ + bias; x [.., in], y [.., out]. Weight and bias start uniform in +-1/sqrt(in).
class Linear : public Layer {
 public:
  /// Initial values from next_generator() (core/base/seed_stream.h): no two layers start alike, and a program
  /// that runs again has the same ones. Any floating dtype; `invalid` if a size is below 1.
  Linear(int64_t in, int64_t out, bool bias = true, DType dtype = float32);
  /// Initial values from `generator`, which moves on.
  Linear(int64_t in, int64_t out, AnyGenerator generator, bool bias = true, DType dtype = float32);

  Tensor forward(const Tensor& x) override;
  void members(Members& m) override { m("weight", weight), m("bias", bias); }
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor weight;  ///< [out, in]
  Tensor bias;    ///< [out]; undefined without

 private:
  void make(int64_t in, int64_t out, bool with_bias, DType dtype);
};

}  // namespace troupe::nn
