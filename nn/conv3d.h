// Convolution of volumes as a layer.
#pragma once
#include "nn/module.h"
#include "ops/conv3d.h"

namespace troupe::nn {

struct Conv3dOptions {
  ops::Triple stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";  ///< or "reflect", "replicate", "circular"
  DType dtype = float32;
};

/// Input x [N, in, D, H, W] -> [N, out, D', H', W'] (ops::conv3d), as Conv2d.
class Conv3d : public Layer {
 public:
  using Options = Conv3dOptions;
  Conv3d(int64_t in, int64_t out, ops::Triple kernel, const Options& options = {});

  Tensor forward(const Tensor& x) override;
  void members(Members& m) override { m("weight", weight), m("bias", bias); }
  void reset(Generator& generator) override;
  std::string str() const override;

  Tensor weight;  ///< [out, in / groups, kernel depth, height, width]
  Tensor bias;    ///< [out]; undefined without

 private:
  Conv3dOptions options_;
};

}  // namespace troupe::nn
